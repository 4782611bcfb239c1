"""Sends the journal to the collector in batches, each under an id that never changes.

The content of a batch is stored on disk before it is first sent. After a crash of either side, the same range is sent
under the same id, and the receiver drops ids that it has seen: so every record arrives once.

An unreachable collector is retried. If it refuses a batch because of its content (400, 413, 415), the batch is sent in
halves until the record at fault is alone; that one becomes a dead letter and the rest arrives.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import UUID

from backends.http_client.http_origin import Origin
from backends.http_client.http_pool import HttpPool
from backends.http_client.http_timeouts import Timeouts
from backends.processes.beat import until_beat
from backends.segment_log.segments import Entry
from backends.telemetry.otlp import CONTENT_TYPE, LOGS_PATH, PackedRecord, build_export_request, rejected_records
from contracts.errors import InvalidRecord, InvalidRequest, UpstreamError, UpstreamTimeout
from contracts.recording.records import event_name_of
from gateway.records.batch_plan import BatchPlan, PlanFile
from gateway.records.dead_letters import DeadLetters
from gateway.records.journal import Journal, unpack_entry

_log = logging.getLogger(__name__)

_SHIP_EVERY_SECONDS: Final = 0.25  # with what else is done four times a second
_MAX_BATCH_ENTRIES: Final = 500  # keeps one batch's assembly under 5 ms on the event loop
_MAX_BATCH_BYTES: Final = 2 * 1024 * 1024
_MAX_BACKOFF_SECONDS: Final = 5.0
_UNANSWERED_SECONDS: Final = 3  # then it is called hung; the batch is given up later
_PERMANENT: Final = frozenset({400, 413, 415})  # OTLP: the same bytes would be refused again
_UNSIGNED: Final = 401
_REFUSALS_BELIEVED: Final = 3  # in a row and alike; fewer may be a collector that is being reconfigured
_MAX_DEAD_LETTER_BYTES: Final = 64 * 1024 * 1024  # beyond, records stay in the journal, whose bound stops admission


class CollectorAnswer:
    """The collector's answer to one export, while it arrives."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status

    def on_body(self, data: bytes) -> None:
        self.body += data


class Shipper:
    """Sends the journal's entries in order, one batch at a time, and repeats each batch until it is acknowledged."""

    def __init__(
        self, journal: Journal, directory: Path, collector_url: str, new_id: Callable[[], UUID], key: bytes
    ) -> None:
        self._journal = journal
        self._plan_file = PlanFile(directory / "batch.plan")
        self.dead_letters = DeadLetters(directory / "dead-letters", max_bytes=_MAX_DEAD_LETTER_BYTES)
        self._refused: tuple[str, int] = ("", 0)  # the batch that was refused last, and with what
        self._refusals = 0
        self._origin = Origin.parse(collector_url)
        self._pool = HttpPool(self._origin, Timeouts(connect=2.0, first_byte=15.0, between=15.0, total=30.0))
        self._new_id = new_id
        self._key = key
        self.shipped_records = 0
        self.rejected_records = 0
        self.unreadable_records = 0
        self.failures_in_a_row = 0
        self.is_unanswered = False  # the collector has a batch and has not answered for a while

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            if await self._try_to_ship():
                self.failures_in_a_row = 0
                await asyncio.sleep(until_beat(_SHIP_EVERY_SECONDS))
            else:
                self.failures_in_a_row += 1
                ceiling = min(0.1 * 2**self.failures_in_a_row, _MAX_BACKOFF_SECONDS)
                await asyncio.sleep(random.uniform(0.5, 1.0) * ceiling)

    async def flush(self, within_seconds: float) -> None:
        """Send the remaining entries within the time limit; the others stay in the journal for the next start."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._try_to_ship()
        except TimeoutError:
            _log.info("journal not empty at stop", extra={"pending_bytes": self._journal.pending_bytes})
        await self._pool.close()
        self._plan_file.close()

    async def _try_to_ship(self) -> bool:
        try:
            return await self._ship_all()
        except OSError as error:  # the disk: a full one may have room again, and shipping is what makes room
            _log.error("journal cannot be shipped", extra={"reason": error.strerror})
            return False

    async def _ship_all(self) -> bool:
        while (plan := self._plan_file.load(self._journal.cursor, self._journal.end) or self._new_plan()) is not None:
            if not await self._ship(plan):
                return False
        return True

    async def _ship(self, plan: BatchPlan) -> bool:
        """Send one batch. Return `False` if it has to be sent again later."""
        entries = self._journal.read(plan.begin_at, max_entries=2**31, max_bytes=2**62, until=plan.end_at)
        records = self._records_of(entries)
        body = build_export_request(plan.batch_id, "tollkeeper-gateway", records, self._key)
        answer = await self._post(body)
        if answer is None:
            return False
        if answer.status != 200:
            said: dict[str, object] = {"status": answer.status, "batch_id": plan.batch_id}
            if answer.status == _UNSIGNED:
                said["reason"] = "its record_signing_key is another one; the records wait in the journal"
            _log.warning("collector refused a batch", extra=said)
            # Where its parent was believed to be refused for good, a part that can still be halved need not wait.
            believed_after = 1 if plan.is_part and len(entries) > 1 else _REFUSALS_BELIEVED
            self._note_refusal(plan, answer.status)
            if answer.status not in _PERMANENT or self._refusals < believed_after:
                return False
            return self._give_way(plan, entries)
        self._count(answer, len(records))
        self.unreadable_records += len(entries) - len(records)
        self._finish(plan)
        return True

    def _finish(self, plan: BatchPlan) -> None:
        self._journal.release(plan.end_at)
        self._plan_file.save(plan.next())

    def _note_refusal(self, plan: BatchPlan, status: int) -> None:
        refused = (plan.batch_id, status)
        self._refusals = self._refusals + 1 if refused == self._refused else 1
        self._refused = refused

    def _give_way(self, plan: BatchPlan, entries: list[Entry]) -> bool:
        """Continue after a refused batch: split it in halves, or set its only entry aside as a dead letter."""
        if len(entries) > 1:
            middle = entries[len(entries) // 2].start
            halves = plan.split(middle, (str(self._new_id()), str(self._new_id())))
            self._plan_file.save(halves)
            _log.warning("batch is sent in halves", extra={"batch_id": plan.batch_id, "entries": len(entries)})
            return True
        for entry in entries:
            if not self.dead_letters.add(entry.payload):
                return False
            _log.error("record set aside: the collector refuses it", extra={"batch_id": plan.batch_id})
        self._finish(plan)
        return True

    def _records_of(self, entries: list[Entry]) -> list[PackedRecord]:
        records: list[PackedRecord] = []
        for at, packed in map(unpack_entry, entries):
            try:
                records.append((event_name_of(packed), at, packed))
            except InvalidRecord as error:  # one such entry must not keep all that follow from arriving
                _log.error("journal entry left out", extra={"reason": error.message})
        return records

    async def _post(self, body: bytes) -> CollectorAnswer | None:
        head = (
            f"POST {self._origin.prefix}{LOGS_PATH} HTTP/1.1\r\nhost: {self._origin.authority}\r\n"
            f"content-type: {CONTENT_TYPE}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        answer = CollectorAnswer()
        waiting = asyncio.create_task(self._note_silence(), name="collector's answer")
        try:
            exchange = await self._pool.send(head.encode("latin-1"), body, answer)
            await exchange.finished()
        except UpstreamError as error:
            if self.failures_in_a_row == 0 and not self.is_unanswered:
                _log.warning("collector unreachable, records wait in the journal", extra={"reason": error.message})
            self.is_unanswered = isinstance(error, UpstreamTimeout)
            return None
        finally:
            waiting.cancel()
        if self.is_unanswered:
            _log.info("collector answers again")
        self.is_unanswered = False
        return answer

    async def _note_silence(self) -> None:
        for _ in range(_UNANSWERED_SECONDS):  # by parts: what holds this process up is no fault of the collector's
            await asyncio.sleep(1.0)
        if not self.is_unanswered and self.failures_in_a_row == 0:
            reason = f"it did not answer for {_UNANSWERED_SECONDS} s"
            _log.warning("collector hung, records wait in the journal", extra={"reason": reason})
        self.is_unanswered = True

    def _count(self, answer: CollectorAnswer, sent: int) -> None:
        rejected = 0
        try:
            rejected, reason = rejected_records(answer.body)
        except InvalidRequest:
            reason = "the collector's answer could not be read"
        if rejected:
            _log.error("collector rejected records", extra={"records": rejected, "reason": reason})
        self.rejected_records += rejected
        self.shipped_records += sent - rejected

    def _new_plan(self) -> BatchPlan | None:
        start, upto = self._journal.cursor, self._journal.end
        entries = self._journal.read(start, max_entries=_MAX_BATCH_ENTRIES, max_bytes=_MAX_BATCH_BYTES)
        if not entries:
            if start < upto:  # all that waits is damaged
                self._journal.release(upto)
            return None
        end = entries[-1].end
        plan = BatchPlan(str(self._new_id()), (start.segment, start.offset), (end.segment, end.offset))
        self._plan_file.save(plan)
        return plan
