"""Total free capacity of the engine hosts behind a pool."""

from collections.abc import Callable
from typing import Final

from backends.llm.host.engine_hosts import EngineHosts
from backends.llm.host.engine_room import EngineRoom
from contracts.serving.configuration import PoolSpec, Snapshot, TargetSpec
from gateway.limits.queue.request import PoolRoom
from gateway.request.clock import Clock

_FRESH_NS: Final = 50_000_000  # hosts report once a second; this only keeps the sum off every request


class EngineRooms:
    """Sums the free capacity of a pool's hosts. `snapshot` returns the current configuration."""

    def __init__(self, hosts: EngineHosts, snapshot: Callable[[], Snapshot], clock: Clock) -> None:
        self._hosts = hosts
        self._snapshot = snapshot
        self._monotonic_ns = clock.monotonic_ns
        self._known: dict[str, tuple[int, PoolRoom | None]] = {}

    def room_of(self, pool: str) -> PoolRoom | None:
        """Return a pool's free capacity; `None` if a target is not one of our engine hosts, or none is ready."""
        now_ns = self._monotonic_ns()
        known = self._known.get(pool)
        if known is not None and now_ns - known[0] < _FRESH_NS:
            return known[1]
        snapshot = self._snapshot()
        spec = snapshot.pools.get(pool)
        room = None if spec is None else self._sum(spec, snapshot)
        if known is not None and known[1] == room:
            room = known[1]  # the same object: the queue sees at once that nothing has changed
        self._known[pool] = (now_ns, room)
        return room

    def _sum(self, pool: PoolSpec, snapshot: Snapshot) -> PoolRoom | None:
        if any(target.kind != "engine" for target in pool.targets):
            return None
        # Several adapters of one host share its capacity, so each model of a host counts once.
        models = {(target.url, self._model_of(target, snapshot)) for target in pool.targets}
        found = [room for url, model in models if (room := self._hosts.room(url, model)) is not None]
        return _together(found) if found else None

    def _model_of(self, target: TargetSpec, snapshot: Snapshot) -> str:
        """Return the host's name for what a target serves: its own, else the model's name for applications."""
        if target.model:
            return target.model
        return next((model.id for model in snapshot.models.values() if model.pool == target.pool), "")


def _together(rooms: list[EngineRoom]) -> PoolRoom:
    seats = [room.max_sequences for room in rooms if room.max_sequences is not None]
    return PoolRoom(
        max_in_flight=sum(seats) if len(seats) == len(rooms) else None,
        max_tokens=sum(room.kv_tokens for room in rooms),
        others_in_flight=sum(room.others_sequences for room in rooms),
        others_tokens=sum(room.others_tokens for room in rooms),
    )
