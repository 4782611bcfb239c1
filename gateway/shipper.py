"""Carries the journal to the collector in batches, each under an id that never changes.

Which entries a batch holds is on disk before it is first sent. After a crash, of us or of the collector, the same
range goes out under the same id, and whoever has seen that id drops it: that is how every record arrives once.
"""

import asyncio
import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from backends.http_pool import HttpPool, Origin, Timeouts
from backends.otlp import CONTENT_TYPE, LOGS_PATH, PackedRecord, build_export_request, rejected_records
from backends.segments import Entry, Position
from contracts.errors import InvalidRecord, InvalidRequest, UpstreamError
from contracts.records import event_name_of
from gateway.journal import Journal, unpack_entry

_log = logging.getLogger(__name__)

_SHIP_EVERY_SECONDS: Final = 0.2
_MAX_BATCH_ENTRIES: Final = 500  # keeps one batch's assembly under 5 ms on the event loop
_MAX_BATCH_BYTES: Final = 2 * 1024 * 1024
_MAX_BACKOFF_SECONDS: Final = 5.0


class _Plan(msgspec.Struct, frozen=True):
    """The batch under way: its id and the places it begins and ends at."""

    batch_id: str
    start: tuple[int, int]
    end: tuple[int, int]


class _Answer:
    """Collects the collector's answer to one export."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status

    def on_body(self, data: bytes) -> None:
        self.body += data


class Shipper:
    """Sends the journal's entries in order, one batch at a time, for as long as it takes."""

    def __init__(self, journal: Journal, directory: Path, collector_url: str, new_id: Callable[[], UUID]) -> None:
        self._journal = journal
        self._plan_path = directory / "batch.json"
        self._origin = Origin.parse(collector_url)
        self._pool = HttpPool(self._origin, Timeouts(connect=2.0, first_byte=15.0, between=15.0, total=30.0))
        self._new_id = new_id
        self.shipped_records = 0
        self.rejected_records = 0
        self.unreadable_records = 0
        self.failures_in_a_row = 0

    async def run(self) -> None:
        """Ship until cancelled."""
        while True:
            if await self._try_to_ship():
                self.failures_in_a_row = 0
                await asyncio.sleep(_SHIP_EVERY_SECONDS)
            else:
                self.failures_in_a_row += 1
                ceiling = min(0.1 * 2**self.failures_in_a_row, _MAX_BACKOFF_SECONDS)
                await asyncio.sleep(random.uniform(0.5, 1.0) * ceiling)

    async def flush(self, within_seconds: float) -> None:
        """Ship what is left, as far as the time allows; the rest stays in the journal for the next start."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._try_to_ship()
        except TimeoutError:
            _log.info("journal not empty at stop", extra={"pending_bytes": self._journal.pending_bytes})
        await self._pool.close()

    async def _try_to_ship(self) -> bool:
        try:
            return await self._ship_all()
        except OSError as error:  # the disk: a full one may have room again, and shipping is what makes room
            _log.error("journal cannot be shipped", extra={"reason": error.strerror})
            return False

    async def _ship_all(self) -> bool:
        while (plan := self._load_plan() or self._new_plan()) is not None:
            if not await self._ship(plan):
                return False
        return True

    async def _ship(self, plan: _Plan) -> bool:
        start, end = Position(*plan.start), Position(*plan.end)
        entries = self._journal.read(start, max_entries=2**31, max_bytes=2**62, until=end)
        records = self._records_of(entries)
        body = build_export_request(plan.batch_id, "tollkeeper-gateway", records)
        answer = await self._post(body)
        if answer is None:
            return False
        if answer.status != 200:
            _log.warning("collector refused a batch", extra={"status": answer.status, "batch_id": plan.batch_id})
            return False
        self._count(answer, len(records))
        self._journal.release(end)
        self._plan_path.unlink(missing_ok=True)
        return True

    def _records_of(self, entries: list[Entry]) -> list[PackedRecord]:
        records: list[PackedRecord] = []
        for at, packed in map(unpack_entry, entries):
            try:
                records.append((event_name_of(packed), at, packed))
            except InvalidRecord as error:  # one such entry must not keep all that follow from arriving
                _log.error("journal entry left out", extra={"reason": error.message})
                self.unreadable_records += 1
        return records

    async def _post(self, body: bytes) -> _Answer | None:
        head = (
            f"POST {self._origin.prefix}{LOGS_PATH} HTTP/1.1\r\nhost: {self._origin.authority}\r\n"
            f"content-type: {CONTENT_TYPE}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        answer = _Answer()
        try:
            exchange = await self._pool.send(head.encode("latin-1"), body, answer)
            await exchange.finished()
        except UpstreamError as error:
            if self.failures_in_a_row == 0:
                _log.warning("collector away, records wait in the journal", extra={"reason": error.message})
            return None
        return answer

    def _count(self, answer: _Answer, sent: int) -> None:
        rejected = 0
        try:
            rejected, reason = rejected_records(answer.body)
        except InvalidRequest:
            reason = "the collector's answer could not be read"
        if rejected:
            _log.error("collector rejected records", extra={"records": rejected, "reason": reason})
        self.rejected_records += rejected
        self.shipped_records += sent - rejected

    def _new_plan(self) -> _Plan | None:
        start = self._journal.cursor
        entries = self._journal.read(start, max_entries=_MAX_BATCH_ENTRIES, max_bytes=_MAX_BATCH_BYTES)
        if not entries:
            return None
        end = entries[-1].end
        plan = _Plan(str(self._new_id()), (start.segment, start.offset), (end.segment, end.offset))
        draft = self._plan_path.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(plan))
        os.replace(draft, self._plan_path)
        return plan

    def _load_plan(self) -> _Plan | None:
        """Give the batch a crash or a failure left under way, unless it had been acknowledged."""
        try:
            plan = msgspec.json.decode(self._plan_path.read_bytes(), type=_Plan)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError:
            _log.error("the batch plan is damaged and is made anew; its batch may arrive twice")
            return None
        if Position(*plan.end) > self._journal.end:
            _log.error("the batch plan is of another journal and is made anew")
            return None
        return plan if Position(*plan.end) > self._journal.cursor else None
