"""Budget totals on disk, next to the journal, exact across restarts.

Totals are written before the journal deletes the records that they contain. At start the last totals are read, and the
records written since then are added: usage that was settled but not yet written is found in the journal, however the
process ended. Reservations are not stored: a request that was at a target when the process died has its record in the
journal before the budgets are read (`gateway/records/lost_requests.py`); a request that was at no target is charged
nothing.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import msgspec

from backends.segment_log.segment_damage import Missing
from backends.segment_log.segments import LogFull, Position, SegmentLog
from contracts.errors import InvalidRecord
from contracts.recording.records import RequestRecord, decode_record
from contracts.rules.limits import BudgetSpec
from contracts.rules.periods import budget_period
from gateway.records.journal import Journal, unpack_entry

_log = logging.getLogger(__name__)

_MAX_BYTES: Final = 256 * 1024 * 1024
_COMPACT_BYTES: Final = 1024 * 1024
_READ_ENTRIES: Final = 1000
_READ_BYTES: Final = 16 * 1024 * 1024


class Period(Protocol):
    """One period of a budget's counter: its start (Unix nanoseconds), and this process's part of its usage."""

    @property
    def period_start_ns(self) -> int: ...
    @property
    def settled(self) -> int: ...
    @property
    def overdraft(self) -> int: ...


class BudgetCounter(Protocol):
    """The part of a budget's counter that the ledger uses."""

    @property
    def rule(self) -> BudgetSpec: ...
    @property
    def subject(self) -> str: ...
    def ledgers(self) -> Iterable[Period]: ...
    def restore(self, period_start_ns: int, settled: int, overdraft: int = 0) -> bool: ...


Key: TypeAlias = tuple[str, str, int]  # budget id, subject, start of the period
Total: TypeAlias = tuple[int, int]  # charged amount, overdraft


class _Total(msgspec.Struct, array_like=True, gc=False):
    rule: str
    subject: str
    start_ns: int
    settled: int
    overdraft: int = 0


class _Page(msgspec.Struct, array_like=True):
    """One entry: totals that changed, and the journal position up to which all totals include its records."""

    segment: int
    offset: int
    totals: list[_Total]
    is_whole: bool = False  # replaces all earlier entries


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Page)


class BudgetLedger:
    """The budget totals of one process on disk. Calls are short and run on the event loop."""

    def __init__(self, directory: Path, journal: Journal) -> None:
        self._file = SegmentLog(directory, max_bytes=_MAX_BYTES)
        self._journal = journal
        self._totals: dict[Key, Total] = {}
        self._changed: set[BudgetCounter] = set()
        self.note = self._changed.add  # marks a counter's settled total as changed
        self._known_to = Position(0, 0)  # the totals include the journal up to here
        self._whole_bytes = 0
        self.before_flush: Callable[[], None] | None = None  # brings counters and journal to the same requests
        self.is_broken = False  # the last write failed
        self._read()

    @property
    def missing(self) -> Missing:
        """Return what damage on disk removed from the totals; it is reported until `damaged/` is deleted."""
        return self._file.missing

    def restore(
        self, open_budget: Callable[[BudgetSpec, str], BudgetCounter], budgets: Iterable[BudgetSpec], now_ns: int
    ) -> None:
        """Set the counters of these budgets to the spending of the current period, including the journal's records."""
        rules = {budget.id: budget for budget in budgets}
        self._add_records(rules)
        starts = {name: budget_period(rule, now_ns) for name, rule in rules.items()}
        present: dict[Key, Total] = {}
        for (name, subject, start_ns), total in self._totals.items():
            period = starts.get(name)
            if period is not None and period[0] == start_ns:
                open_budget(rules[name], subject).restore(start_ns, *total)
            if name not in rules or period is None or start_ns >= period[0]:
                present[name, subject, start_ns] = total  # ended periods need not be stored
        self._totals = present
        self._known_to = self._journal.end
        self._write(present, is_whole=True)

    def flush(self) -> None:
        """Write what has changed. Called before the journal deletes records, and periodically."""
        if self.before_flush is not None:
            self.before_flush()
        if not self._changed:
            return
        changed = {
            (counter.rule.id, counter.subject, period.period_start_ns): (period.settled, period.overdraft)
            for counter in self._changed
            for period in counter.ledgers()
        }
        self._totals |= changed
        self._changed.clear()
        self._known_to = self._journal.end
        if self._file.pending_bytes > max(_COMPACT_BYTES, 2 * self._whole_bytes):
            self._write(self._totals, is_whole=True)
        else:
            self._write(changed, is_whole=False)

    def close(self) -> None:
        """Write the last changes and close the file."""
        self.flush()
        self._file.close()

    def _read(self) -> None:
        at = self._file.cursor
        while entries := self._file.read(at, max_entries=_READ_ENTRIES, max_bytes=_READ_BYTES):
            for entry in entries:
                page = _decoder.decode(entry.payload)
                if page.is_whole:
                    self._totals = {}
                self._totals |= {
                    (total.rule, total.subject, total.start_ns): (total.settled, total.overdraft)
                    for total in page.totals
                }
                self._known_to = Position(page.segment, page.offset)
            at = entries[-1].end

    def _add_records(self, rules: dict[str, BudgetSpec]) -> None:
        """Add the records that the totals do not include, each to the budgets that cover it."""
        by_tenant: dict[str, list[BudgetSpec]] = {}
        for rule in rules.values():
            by_tenant.setdefault(rule.scope.tenant, []).append(rule)
        at = max(self._known_to, self._journal.cursor)
        while entries := self._journal.read(at, max_entries=_READ_ENTRIES, max_bytes=_READ_BYTES):
            for entry in entries:
                try:
                    record = decode_record(unpack_entry(entry)[1])
                except InvalidRecord:
                    continue  # the shipper reports and skips it
                if isinstance(record, RequestRecord):
                    for rule in by_tenant.get(record.who.tenant, ()):
                        self._add(rule, record)
            at = entries[-1].end

    def _add(self, rule: BudgetSpec, record: RequestRecord) -> None:
        subject = rule.scope.subject_of(record.who, record.model, record.conversation_id)
        amount, overdraft = _charged(rule, record)
        if subject is None or not (amount or overdraft):
            return
        taken_at_ns = record.started_at_ns + (record.admission_ns or 0)
        period = budget_period(rule, taken_at_ns)
        if period is None:
            return
        key = (rule.id, subject, period[0])
        settled, beyond = self._totals.get(key, (0, 0))
        self._totals[key] = settled + amount, beyond + overdraft

    def _write(self, totals: Mapping[Key, Total], *, is_whole: bool) -> None:
        listed = [_Total(*key, *total) for key, total in totals.items()]
        page = _Page(self._known_to.segment, self._known_to.offset, listed, is_whole)
        payload = _encoder.encode(page)
        start = self._file.end
        try:
            self._file.append(payload)
            if is_whole:
                self._whole_bytes = len(payload)
                self._file.release(start)
        except (LogFull, OSError) as error:
            if not self.is_broken:
                _log.error("budget totals cannot be written", extra={"reason": str(error)})
            self.is_broken = True
            return
        self.is_broken = False


def _charged(rule: BudgetSpec, record: RequestRecord) -> Total:
    if rule.metric == "pico_usd":
        return record.charged_pico_usd or 0, record.overdraft_pico_usd or 0
    gpu = record.gpu
    return 0 if gpu is None else gpu.prefill_ns + gpu.decode_ns + gpu.recompute_ns + gpu.wasted_ns, 0
