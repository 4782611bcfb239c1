"""Logs KV cache changes as records, numbered without gaps, for gateways that mirror the cache.

A full cache evicts a block for nearly every block it stores, and a record for each would fill a gateway's journal. So
removals are collected for a short time and written as one record per tenant and adapter.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from backends.engine.torch_engine.block_hash import public_hash
from backends.engine.torch_engine.block_manager import KvChange
from contracts.recording.records import KvRecord

MAX_PENDING: Final = 65_536
REMOVALS_WAIT_NS: Final = 250_000_000  # meanwhile mirrors still list evicted blocks, which costs little
_MOST_REMOVALS: Final = 4_096  # per record


@dataclass(slots=True)
class KvEventLog:
    """Converts changes to records. Of more than 65,536 pending records the oldest are dropped, which shows as a gap.

    A mirror that applies the records in order equals the cache, except for removals of the last 0.25 s. A block that is
    stored again is always written after its removal.
    """

    engine: str
    model: str
    replica: str
    block_size: int
    medium: str
    clock_ns: Callable[[], int]  # Unix time
    sequence: int = 0
    _pending: list[KvRecord] = field(default_factory=list)
    _removed: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)  # by tenant and adapter
    _removed_keys: set[bytes] = field(default_factory=set)
    _removed_since_ns: int = 0  # time of the oldest of them

    def note(self, change: KvChange) -> None:
        """Record one change."""
        if change.event == "removed":
            self._collect(change)
            return
        if change.event == "cleared" or not self._removed_keys.isdisjoint(change.keys):
            self._write_removals()
        self._write(change)

    def take(self, *, more_follows: bool = False) -> list[KvRecord]:
        """Return and clear the pending records. With `more_follows`, recent removals may be delayed."""
        if self._removed and not (more_follows and self._is_fresh()):
            self._write_removals()
        taken, self._pending = self._pending, []
        return taken

    def _collect(self, change: KvChange) -> None:
        if not self._removed:
            self._removed_since_ns = self.clock_ns()
        together = self._removed.setdefault(change.label, [])
        together.extend(change.keys)
        self._removed_keys.update(change.keys)
        if len(together) >= _MOST_REMOVALS:
            self._write_removals()

    def _is_fresh(self) -> bool:
        return 0 <= self.clock_ns() - self._removed_since_ns < REMOVALS_WAIT_NS

    def _write_removals(self) -> None:
        removed, self._removed = self._removed, {}
        self._removed_keys.clear()
        for label, keys in removed.items():
            self._write(KvChange("removed", tuple(keys), None, label))

    def _write(self, change: KvChange) -> None:
        tenant, adapter = change.label
        self._pending.append(
            KvRecord(
                engine=self.engine,
                sequence=self.sequence,
                at_ns=self.clock_ns(),
                event=change.event,
                block_hashes=[public_hash(key) for key in change.keys],
                parent_hash=None if change.parent is None else public_hash(change.parent),
                block_size=self.block_size,
                medium=self.medium,
                adapter=adapter,
                tenant=tenant,
                model=self.model,
                replica=self.replica,
            )
        )
        self.sequence += 1
        if len(self._pending) > MAX_PENDING:
            del self._pending[: MAX_PENDING // 2]
