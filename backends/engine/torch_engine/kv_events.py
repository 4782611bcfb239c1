"""The log of KV cache changes as records, numbered without holes, for whoever mirrors the cache."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from backends.engine.torch_engine.block_hash import public_hash
from backends.engine.torch_engine.block_manager import KvChange
from contracts.records import KvRecord

MAX_PENDING: Final = 65_536


@dataclass(slots=True)
class KvEventLog:
    """Turns changes into records until they are taken. Beyond 65,536 pending the oldest are dropped: the hole shows."""

    engine: str
    model: str
    replica: str
    block_size: int
    medium: str
    clock_ns: Callable[[], int]  # Unix time
    sequence: int = 0
    _pending: list[KvRecord] = field(default_factory=list)

    def note(self, change: KvChange) -> None:
        """Record one change."""
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

    def take(self) -> list[KvRecord]:
        """Give the records since the last call, and forget them."""
        taken, self._pending = self._pending, []
        return taken
