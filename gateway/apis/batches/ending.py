"""Ends a batch: writes the results of its last lines, and the files with all results.

Each step may be repeated after a restart: lines keep a result that they have, and unfinished files stay invisible and
are deleted later.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contracts.objects.batches import Batch, BatchEnd
from contracts.objects.files import PIECE_BYTES, StoredFile
from contracts.recording.ids import uuid7
from gateway.apis.batches.results import unanswered
from gateway.apis.files.resource import new_file_id
from gateway.apis.files.upload import DEFAULT_EXPIRY_SECONDS
from gateway.request.clock import Clock

if TYPE_CHECKING:
    from backends.objects.batch_work import BatchWork
    from backends.objects.files import FileStore

_LINES_AT_ONCE: Final = 50
_REASONS: Final[dict[BatchEnd, tuple[str, str]]] = {
    "expired": ("batch_expired", "This request could not be executed before the completion window expired."),
    "cancelled": ("batch_cancelled", "This request was not executed because the batch was cancelled."),
    "failed": ("batch_failed", "This request was not executed because the batch's API key may pay no more."),
}


@dataclass(frozen=True, slots=True)
class Ending:
    """Ends batches."""

    work: "BatchWork"
    files: "FileStore"
    clock: Clock

    async def write(self, batch: Batch, end: BatchEnd) -> None:
        """Write an outcome for every line, write the files and end the batch. Raises LeaseLost, ObjectsUnavailable."""
        if end in _REASONS and batch.in_progress_unix is not None:
            await self._close_lines(batch.id, *_REASONS[end])
        output = errors = None
        if batch.in_progress_unix is not None:
            output = await self._write_file(batch, "output", is_failed=False)
            errors = await self._write_file(batch, "error", is_failed=True)
        await self.work.end(batch.id, end, output, errors, self.clock.wall_ns() // 1_000_000_000)

    async def _close_lines(self, batch_id: str, code: str, message: str) -> None:
        while lines := await self.work.next_lines(batch_id, 0, _LINES_AT_ONCE):
            now_ns = self.clock.wall_ns()
            await self.work.finish(batch_id, [unanswered(line, code, message, uuid7(now_ns)) for line in lines])

    async def _write_file(self, batch: Batch, name: str, *, is_failed: bool) -> StoredFile | None:
        """Write the results of one kind, in the order of their lines; none if there is no such result."""
        found = await self.work.results(batch.id, 0, _LINES_AT_ONCE, is_failed=is_failed)
        if not found:
            return None
        now_ns = self.clock.wall_ns()
        created_unix = now_ns // 1_000_000_000
        file = StoredFile(
            id=new_file_id(now_ns),
            owner=batch.owner,
            filename=f"{batch.id}_{name}.jsonl",
            purpose="batch_output",
            size_bytes=0,
            created_unix=created_unix,
            expires_unix=created_unix + (batch.output_expires_after_seconds or DEFAULT_EXPIRY_SECONDS),
        )
        await self.files.begin(file)
        size, written, tail = 0, 0, bytearray()
        while found:
            for _, result in found:
                tail += result + b"\n"
            whole = len(tail) // PIECE_BYTES
            pieces = [bytes(tail[place * PIECE_BYTES : (place + 1) * PIECE_BYTES]) for place in range(whole)]
            await self.files.append(file.id, written, pieces)
            del tail[: whole * PIECE_BYTES]
            size, written = size + whole * PIECE_BYTES, written + whole
            found = await self.work.results(batch.id, found[-1][0], _LINES_AT_ONCE, is_failed=is_failed)
        if tail:
            await self.files.append(file.id, written, [bytes(tail)])
        return StoredFile(
            file.id, file.owner, file.filename, file.purpose, size + len(tail), created_unix, file.expires_unix
        )
