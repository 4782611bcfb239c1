"""Estimates the GPU memory of each model, awake and asleep. Pure.

If a host has one model, it is the memory of the host's processes. Otherwise it is the difference in free memory while
only that model changed: the GPU is sampled once a second, so a change is measured from the last sample before it to the
first one a little after it; if two changes overlap, neither is measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from backends.engine.placement import DeviceRoom

_SETTLED_NS: Final = 1_500_000_000  # after a change, until samples include it
_STEADY_LOOKS: Final = 3


@dataclass(frozen=True, slots=True)
class _Change:
    model: str
    free_before: dict[str, int]
    ended_ns: int | None = None
    asleep: bool = False


@dataclass(slots=True)
class MemoryBook:
    """Measured memory by model: bytes on the GPU that changed most. `None`: never measured."""

    _awake: dict[str, int] = field(default_factory=dict)
    _asleep: dict[str, int] = field(default_factory=dict)
    _change: _Change | None = None
    _alone: tuple[str, bool] = ("", False)  # the host's only model, and whether it sleeps
    _alone_looks: int = 0

    def awake_bytes(self, model: str) -> int | None:
        """Return a model's memory on each GPU while it is awake."""
        return self._awake.get(model)

    def expect(self, model: str, size: int) -> None:
        """Record an operator's estimate for a model that was never measured."""
        self._awake.setdefault(model, size)

    def asleep_bytes(self, model: str) -> int | None:
        """Return a model's memory on each GPU while it sleeps."""
        return self._asleep.get(model)

    def begin(self, model: str, now_ns: int, rooms: Sequence[DeviceRoom]) -> None:
        """Record that a model starts to allocate or free memory. A change in progress is then not measured."""
        self._change = _Change(model, {room.uuid: room.free_bytes for room in rooms}) if rooms else None

    def end(self, model: str, now_ns: int, *, asleep: bool = False) -> None:
        """Record that a model's change has ended."""
        change = self._change
        if change is not None and change.model == model:
            self._change = _Change(model, change.free_before, now_ns, asleep)

    def alone(self, model: str, held_bytes: int, *, asleep: bool) -> None:
        """Record a sample of a host with one model; after a few equal ones, `held_bytes` is the model's memory."""
        self._alone_looks = self._alone_looks + 1 if self._alone == (model, asleep) else 1
        self._alone = model, asleep
        if self._alone_looks >= _STEADY_LOOKS and self._change is None:
            (self._asleep if asleep else self._awake)[model] = held_bytes

    def look(self, now_ns: int, rooms: Sequence[DeviceRoom]) -> None:
        """Record a sample of the GPUs; it measures a change that ended long enough ago."""
        change = self._change
        if change is None or change.ended_ns is None or now_ns - change.ended_ns < _SETTLED_NS:
            return
        self._change = None
        taken = [change.free_before[room.uuid] - room.free_bytes for room in rooms if room.uuid in change.free_before]
        if not taken:
            return
        if change.asleep:
            given = -min(taken)
            if given > 0 and change.model in self._awake:
                self._asleep[change.model] = max(self._awake[change.model] - given, 0)
        elif max(taken) > 0:
            kept = self._asleep.get(change.model, 0) if change.model in self._awake else 0
            self._awake[change.model] = max(taken) + kept
