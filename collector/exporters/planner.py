"""Forms inserts: takes the waiting batches that are this collector's to store, and writes down which they are."""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from backends.segment_log.segments import Position
from backends.store.batch_claims import BatchClaims
from collector.counters import Counters
from collector.exporters.insert_plan import InsertPlan, PlanFile
from collector.exporters.prepared import INSERT_BYTES
from collector.exporters.token_window import TokenWindow
from collector.spool import Spool, SpoolEntry

_log = logging.getLogger(__name__)

ANOTHERS: Final = "batches_of_another_collector"
_ALL_BYTES: Final = 1 << 62
_MAX_TOKEN_CHARACTERS: Final = 200  # of a sender's own id; the plan must fit in its file
_ASK_AGAIN_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class PlannedInsert:
    """Entries that go to the store under one token, and the place to release them to.

    `is_new`: nobody has tried it yet.
    """

    token: str
    entries: list[SpoolEntry]
    end: Position
    is_new: bool = True


class InsertPlanner:
    """Plans one insert after the other; what was planned and not released is planned the same again.

    Several batches go together where the store can tell whose each is (see `BatchClaims`), else each goes alone under
    its own id. So does the very first: a version that merged nothing may have left it half-way.
    """

    def __init__(
        self,
        spool: Spool,
        file: PlanFile,
        claims: BatchClaims,
        counters: Counters,
        window: TokenWindow | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without a `window` the store is taken to know every token for ever."""
        self._spool = spool
        self._file = file
        self._claims = claims
        self._window = window
        self._counters = counters
        self._clock = clock
        self._merges = False
        self._ask_at = 0.0

    @property
    def merges(self) -> bool:
        """Return whether several batches went together, as far as the store was asked."""
        return self._merges

    def is_in_doubt(self) -> bool:
        """Whether an insert was begun and not released, as far as the disk says: the store may have it or not."""
        cursor, end = self._spool.cursor, self._spool.end
        return self._file.load(cursor, end) is not None or (self._file.is_empty and cursor < end)

    def next(self, ready: Sequence[SpoolEntry] = ()) -> PlannedInsert | None:
        """Return the next insert; `None` if nothing waits.

        `ready` are the entries that follow the spool's cursor, where someone has read them already. Raises what the
        store's client does, and OSError where the spool's disk fails.
        """
        cursor, end = self._spool.cursor, self._spool.end
        plan = self._file.load(cursor, end)
        if plan is not None:
            entries = self._spool.read(cursor, max_bytes=_ALL_BYTES, until=plan.end_at)
            is_same = _first_received_at_ns(entries) in (0, plan.first_received_at_ns)
            if is_same or self._spool.missing.is_any:  # its first batch may be one that damage took
                return _planned(plan, entries, is_new=False)
            _log.error("the insert plan is of another spool and was replaced")
        entries = list(ready) or self._spool.read(cursor, max_bytes=INSERT_BYTES)
        if not entries:  # nothing, or nothing that can be read
            return PlannedInsert("", [], end) if cursor < end else None
        if self._window is not None and self._may_merge():
            self._window.mark()
        plan = self._new_plan(entries)
        self._file.save(plan)
        self._counters.noticed(ANOTHERS, len(plan.left_out))
        return _planned(plan, [entry for entry in entries if entry.end <= plan.end_at], is_new=True)

    def forgetful_tables(self) -> frozenset[str]:
        """Return the tables that may have forgotten the token of what was planned last. Raises as `next` does.

        None if claims have no order: that is a cluster, whose tables' parts tell nothing of its windows.
        """
        return self._window.passed() if self._window is not None and self._may_merge() else frozenset()

    def forget_store(self) -> None:
        """Ask the store again what it can: it failed, and may be another when it is back."""
        self._ask_at = 0.0

    def _new_plan(self, entries: list[SpoolEntry]) -> InsertPlan:
        merges = self._may_merge()
        if not merges or self._file.is_empty:
            entries = entries[:1]
        left_out = self._of_others(entries) if merges else ()
        ids = [entry.batch.batch_id for entry in entries if entry.batch and entry.end not in left_out]
        token = ids[0] if len(ids) == 1 and len(ids[0]) <= _MAX_TOKEN_CHARACTERS else _token(ids)
        return InsertPlan(token, entries[-1].end, _first_received_at_ns(entries), left_out)

    def _of_others(self, entries: Sequence[SpoolEntry]) -> tuple[Position, ...]:
        named: dict[str, int] = {}
        for entry in entries:
            if entry.batch and entry.batch.is_named:
                named.setdefault(entry.batch.batch_id, entry.batch.received_at_ns)
        ours = self._claims.claim(named)
        return tuple(entry.end for entry in entries if entry.batch and not _is_ours(entry, ours, named))

    def _may_merge(self) -> bool:
        if self._clock() >= self._ask_at:
            self._merges = self._claims.are_ordered()
            self._ask_at = self._clock() + _ASK_AGAIN_SECONDS
        return self._merges


def _is_ours(entry: SpoolEntry, ours: set[str], named: dict[str, int]) -> bool:
    batch = entry.batch
    if batch is None or not batch.is_named:
        return True
    return batch.batch_id in ours and named[batch.batch_id] == batch.received_at_ns


def _planned(plan: InsertPlan, entries: Sequence[SpoolEntry], *, is_new: bool) -> PlannedInsert:
    left_out = {Position(*place) for place in plan.left_out}
    return PlannedInsert(plan.token, [entry for entry in entries if entry.end not in left_out], plan.end_at, is_new)


def _token(batch_ids: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for batch_id in batch_ids:
        digest.update(batch_id.encode() + b"\0")
    return digest.hexdigest()


def _first_received_at_ns(entries: Sequence[SpoolEntry]) -> int:
    return next((entry.batch.received_at_ns for entry in entries if entry.batch), 0)
