"""Plans inserts: selects the queued batches that this collector has to store, and saves the selection."""

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
_MAX_TOKEN_CHARACTERS: Final = 200  # maximum length of a sender's batch id as token; the plan must fit in its file
_ASK_AGAIN_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class PlannedInsert:
    """Spool entries to insert under one token, and the position up to which to release them.

    `is_new`: this is the first attempt.
    """

    token: str
    entries: list[SpoolEntry]
    end: Position
    is_new: bool = True


class InsertPlanner:
    """Plans one insert at a time. A plan that was not released is returned again unchanged.

    Several batches are merged if the store supports claims (see `BatchClaims`); otherwise each batch is inserted alone
    under its own id. The first insert is never merged: an older version without merging may have left it unfinished.
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
        """Without a `window` the store is assumed to remember every token."""
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
        """Return whether batches are merged; False until the store was asked."""
        return self._merges

    def is_in_doubt(self) -> bool:
        """Return whether an insert was started and not released, so that the store may have it or not."""
        cursor, end = self._spool.cursor, self._spool.end
        return self._file.load(cursor, end) is not None or (self._file.is_empty and cursor < end)

    def next(self, ready: Sequence[SpoolEntry] = ()) -> PlannedInsert | None:
        """Return the next insert; `None` if nothing is queued.

        `ready`: the entries after the spool's cursor, if they were read already. Raises the errors of the store's
        client, and OSError if the spool's disk fails.
        """
        cursor, end = self._spool.cursor, self._spool.end
        plan = self._file.load(cursor, end)
        if plan is not None:
            entries = self._spool.read(cursor, max_bytes=_ALL_BYTES, until=plan.end_at)
            is_same = _first_received_at_ns(entries) in (0, plan.first_received_at_ns)
            if is_same or self._spool.missing.is_any:  # its first batch may have been lost to disk damage
                return _planned(plan, entries, is_new=False)
            _log.error("the insert plan is of another spool and was replaced")
        entries = list(ready) or self._spool.read(cursor, max_bytes=INSERT_BYTES)
        if not entries:  # nothing queued, or nothing readable
            return PlannedInsert("", [], end) if cursor < end else None
        if self._window is not None and self._may_merge():
            self._window.mark()
        plan = self._new_plan(entries)
        self._file.save(plan)
        self._counters.noticed(ANOTHERS, len(plan.left_out))
        return _planned(plan, [entry for entry in entries if entry.end <= plan.end_at], is_new=True)

    def forgetful_tables(self) -> frozenset[str]:
        """Return the tables that may have forgotten the last plan's token. Raises as `next` does.

        Empty for a cluster (claims without order): there, tables' parts do not show how far the windows have moved.
        """
        return self._window.passed() if self._window is not None and self._may_merge() else frozenset()

    def forget_store(self) -> None:
        """Clear what is known about the store's capabilities: after a failure another store may answer."""
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
