"""Runs one batch from its current state to its end: reads its input, serves its lines, writes its files.

Every line's result is in the database before its worker takes the next one, so that after a restart only the lines in
progress are served again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import structs

from contracts.errors import ClientGone, ObjectsUnavailable, Shutdown, TollkeeperError
from contracts.objects.batches import Batch, BatchEnd, BatchFault, LineOutcome, NewLine
from contracts.recording.ids import uuid7
from contracts.serving.configuration import KeyEntry
from gateway.apis.batches.ending import Ending
from gateway.apis.batches.input_lines import InputReader
from gateway.apis.batches.line_exchange import LineExchange
from gateway.apis.batches.line_retries import LineRetries
from gateway.apis.batches.payer import payer_of
from gateway.apis.batches.results import answered, unanswered
from gateway.apis.operations import Operation
from gateway.apis.rendering import ErrorShape
from gateway.config.directory import Directory
from gateway.request.clock import Clock
from gateway.request.dispatch import Dispatcher
from gateway.request.request_state import RequestState

if TYPE_CHECKING:
    from backends.objects.batch_work import BatchWork
    from backends.objects.files import FileStore

_log = logging.getLogger(__name__)

_LINES_AHEAD: Final = 4  # for each worker
_AWAY_SECONDS: Final = 1.0  # between looks at what does not answer
_LARGE_BYTES: Final = 1 << 20  # an answer of more is read in a thread

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class BatchDependencies:
    """Dependencies for processing batches. `turns` limits the lines served at once, over all batches."""

    work: "BatchWork"
    files: "FileStore"
    dispatcher: Dispatcher
    directory: Directory
    operations: Mapping[str, Operation]
    clock: Clock
    concurrency: int
    turns: asyncio.Semaphore


class BatchRun:
    """Processes one batch. `cancel` and `leave` may be called at any time; `waiting` and `serving` count lines."""

    def __init__(self, batch: Batch, shop: BatchDependencies) -> None:
        self.batch = batch
        self.waiting = batch.waiting
        self.serving = 0
        self._shop = shop
        self._end: BatchEnd | None = batch.outcome
        self._faults: tuple[BatchFault, ...] = batch.faults
        self._is_left = False
        self._is_aborted = False
        self._stopped = asyncio.Event()  # no further line is to be begun
        self._ahead: deque[NewLine] = deque()
        self._read_to = 0
        self._reading = asyncio.Lock()
        self._unwritten: list[LineOutcome] = []
        self._writing = asyncio.Lock()
        self._requests: dict[asyncio.Task[None], RequestState] = {}
        if batch.state == "cancelling":
            self.cancel()

    async def run(self) -> None:
        """Process the batch until it ends or `leave` is called. Raises LeaseLost, ObjectsUnavailable."""
        try:
            if self.batch.outcome is None:
                if self.batch.in_progress_unix is None and self._end is None:
                    await self._read_input()
                if self._end is None and not self._is_left:
                    await self._work_off()
                if self._is_left:
                    return
                await self._shop.work.decide(self.batch.id, self._end or "completed", self._faults, self._now_unix)
            ending = Ending(self._shop.work, self._shop.files, self._shop.clock)
            await ending.write(self.batch, self._end or "completed")
            self.waiting = 0
        finally:
            self.abort()
            if self._requests:
                await asyncio.wait(self._requests)

    def cancel(self) -> None:
        """Start no further line. The batch ends as cancelled once the lines in progress have finished."""
        self._stop("cancelled")

    def leave(self) -> None:
        """Start no further line: another process will continue."""
        self._is_left = True
        self._stopped.set()

    def abort(self, why: TollkeeperError | None = None) -> None:
        """Cancel the lines in progress: with this error, or as if their clients had disconnected. They are billed for
        their usage.
        """
        self._is_aborted = True
        for life in self._requests.values():
            life.exchange.cut_by = why or life.exchange.cut_by
            life.cancel()

    def _stop(self, end: BatchEnd, fault: BatchFault | None = None) -> None:
        if self._end is None:
            self._end = end
            self._faults += () if fault is None else (fault,)
        self._stopped.set()

    @property
    def _now_unix(self) -> int:
        return self._shop.clock.wall_ns() // 1_000_000_000

    # the input

    async def _read_input(self) -> None:
        """Store the file's lines; end the batch as failed if it cannot be run as a whole."""
        shop, batch = self._shop, self.batch
        await shop.work.forget_lines(batch.id)
        snapshot = shop.directory.snapshot
        try:
            key = payer_of(batch, snapshot, shop.clock.wall_ns())
        except TollkeeperError as error:
            return self._stop("failed", BatchFault(error.error_code, error.message))
        reader = InputReader(batch.endpoint, lambda name: snapshot.serves(name, key.models))
        number, size = 0, 0
        file = await shop.files.find(batch.owner, batch.input_file_id, self._now_unix)
        while file is not None and size < file.size_bytes and not reader.has_failed:
            if self._stopped.is_set():
                return None
            piece = await shop.files.piece(file.id, number)
            if piece is None:
                file = None
                break
            await shop.work.add_lines(batch.id, await asyncio.to_thread(reader.feed, piece))
            number, size = number + 1, size + len(piece)
        if file is None:
            message = f"the file {batch.input_file_id!r} has been deleted or has expired"
            return self._stop("failed", BatchFault("file_not_found", message, param="input_file_id"))
        await shop.work.add_lines(batch.id, await asyncio.to_thread(reader.end))
        if reader.faults:
            self._faults = tuple(reader.faults)
            return self._stop("failed")
        await shop.work.begin(batch.id, reader.total, reader.model, self._now_unix)
        self.waiting = reader.total
        self.batch = structs.replace(
            batch, total=reader.total, model=reader.model, in_progress_unix=self._now_unix, state="in_progress"
        )
        return None

    # the lines

    async def _work_off(self) -> None:
        """Serve lines until none is left, or the batch is stopped."""
        workers = [asyncio.create_task(self._serve_lines()) for _ in range(self._shop.concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)

    async def _serve_lines(self) -> None:
        while (line := await self._next_line()) is not None:
            try:
                outcome = await self._outcome_of(line)
            except Exception:  # the edge of one line: were it to end the run, the line would be asked for ever again
                _log.exception("a line of a batch failed", extra={"batch": self.batch.id})
                outcome = self._unserved(line)
            if outcome is None:
                return
            await self._keep(outcome)
            self.waiting -= 1

    async def _next_line(self) -> NewLine | None:
        async with self._reading:
            if self._is_over():
                return None
            if not self._ahead:
                ahead = _LINES_AHEAD * self._shop.concurrency
                more = partial(self._shop.work.next_lines, self.batch.id, self._read_to, ahead)
                self._ahead.extend(await self._surely(more))
            if not self._ahead:
                return None
            line = self._ahead.popleft()
            self._read_to = line.number
            return line

    def _is_over(self) -> bool:
        """Return whether no further line may start; detects the end of the batch's window."""
        if not self._stopped.is_set() and self._now_unix >= self.batch.expires_unix:
            self._stop("expired")
        return self._stopped.is_set()

    async def _outcome_of(self, line: NewLine) -> LineOutcome | None:
        """Serve a line, with retries; return its result, `None` if the batch was stopped first and the line still
        waits.
        """
        patience = LineRetries()
        while not self._is_over():
            if self._shop.directory.is_too_old:  # whether the key is still good cannot be known
                await self._wait(_AWAY_SECONDS)
                continue
            try:
                key = payer_of(self.batch, self._shop.directory.snapshot, self._shop.clock.wall_ns())
            except TollkeeperError as refusal:
                self._stop("failed", BatchFault(refusal.error_code, refusal.message))
                return None
            async with self._shop.turns:
                if self._is_over():
                    return None
                exchange, error = await self._ask(line, key, patience.tries)
            if self._is_aborted and isinstance(error, ClientGone | Shutdown):
                return None
            wait = None if error is None else patience.wait_after(error)
            if wait is None:
                return await self._outcome_from(line, exchange)
            await self._wait(wait)
        return None

    async def _outcome_from(self, line: NewLine, exchange: LineExchange) -> LineOutcome:
        answer, result_id = exchange.answer, uuid7(self._shop.clock.wall_ns())
        if answer is None:
            return self._unserved(line)
        if len(answer.body) > _LARGE_BYTES:
            return await asyncio.to_thread(answered, line, answer, result_id)
        return answered(line, answer, result_id)

    def _unserved(self, line: NewLine) -> LineOutcome:
        result_id = uuid7(self._shop.clock.wall_ns())
        return unanswered(line, "internal_error", "the gateway failed; see its log", result_id)

    async def _ask(self, line: NewLine, key: KeyEntry, tries: int) -> tuple[LineExchange, TollkeeperError | None]:
        """Serve a line once."""
        operation = self._shop.operations[self.batch.endpoint]
        errors: list[TollkeeperError] = []

        def body(error: TollkeeperError) -> bytes:
            errors.append(error)
            return operation.errors.body(error)

        exchange = LineExchange(
            self.batch.endpoint,
            line.request,
            {
                b"x-tollkeeper-run-id": self.batch.id.encode(),
                b"x-tollkeeper-priority": b"batch",
                b"x-tollkeeper-tags": self.batch.tags.encode("latin-1"),
                b"x-stainless-retry-count": b"%d" % tries,  # who was refused before has a place kept for it
            },
        )
        told = replace(operation, errors=ErrorShape(body, operation.errors.event))
        life = self._shop.dispatcher.serve(exchange, told, key, is_batched=True)
        task = asyncio.create_task(life.ended())
        self._requests[task] = life
        self.serving += 1
        try:
            await asyncio.wait((task,))
        finally:
            self.serving -= 1
            if task.done():
                self._requests.pop(task, None)
        return exchange, errors[0] if errors else None

    async def _keep(self, outcome: LineOutcome) -> None:
        """Store a result, together with those that arrived while others were being written, in one transaction."""
        self._unwritten.append(outcome)
        async with self._writing:
            outcomes, self._unwritten = self._unwritten, []
            if outcomes:  # else the last writer has written this one too
                await self._surely(partial(self._shop.work.finish, self.batch.id, outcomes))

    async def _surely(self, step: Callable[[], Awaitable[_Found]]) -> _Found:
        """Run a database step, retrying while the database is unreachable: what was answered has been paid for."""
        while True:
            try:
                return await step()
            except ObjectsUnavailable:
                if self._is_left:
                    raise
                await asyncio.sleep(_AWAY_SECONDS)

    async def _wait(self, seconds: float) -> None:
        """Wait, until the batch is stopped or its window ends at the latest."""
        left = self.batch.expires_unix - self._shop.clock.wall_ns() / 1e9
        try:
            async with asyncio.timeout(max(min(seconds, left), 0.0)):
                await self._stopped.wait()
        except TimeoutError:
            pass
