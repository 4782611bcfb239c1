"""Chooses GPUs for a model by memory, evicting idle models if needed. Pure: returns a plan.

An idle model that can sleep is put to sleep first (its engine keeps a little GPU memory); one that cannot, or whose
sleep does not free enough, is unloaded. Models that serve or must stay warm are not evicted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, Literal

from contracts.errors import ConfigurationError, Unavailable

GIB: Final = 1 << 30
_MOST_CHOICES: Final = 5_000  # device groups to compare

Deed = Literal["sleep", "unload"]


@dataclass(frozen=True, slots=True)
class DeviceRoom:
    """A GPU, or a slice of one, with its total and its free memory."""

    uuid: str
    total_bytes: int
    free_bytes: int
    is_slice: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """A model's memory on each of its `ranks` GPUs: weights, minimum KV cache, and overhead."""

    model: str
    weight_bytes: int
    kv_bytes: int = 0
    overhead_bytes: int = 0  # activations, CUDA graphs, the driver's context
    ranks: int = 1

    def __post_init__(self) -> None:
        if self.ranks < 1 or min(self.weight_bytes, self.kv_bytes, self.overhead_bytes) < 0:
            raise ConfigurationError(f"model {self.model!r} cannot need {self}")

    @property
    def bytes_per_device(self) -> int:
        """Return the sum of weights, KV cache and overhead."""
        return self.weight_bytes + self.kv_bytes + self.overhead_bytes


@dataclass(frozen=True, slots=True)
class Resident:
    """A loaded model. Bytes are on each of its GPUs; asleep it uses `asleep_bytes`. `can_sleep` applies while it is
    awake.
    """

    model: str
    devices: tuple[str, ...]
    awake_bytes: int
    asleep_bytes: int = 0
    is_asleep: bool = False
    can_sleep: bool = False
    is_busy: bool = False  # it has running or queued requests
    is_warm: bool = False  # must stay awake
    last_used_ns: int = 0

    @property
    def held_bytes(self) -> int:
        """Return the memory that it uses on each GPU now."""
        return self.asleep_bytes if self.is_asleep else self.awake_bytes

    @property
    def may_leave(self) -> bool:
        """Return whether it may be evicted."""
        return not self.is_busy and not self.is_warm


@dataclass(frozen=True, slots=True)
class Step:
    """Putting a loaded model to sleep or unloading it, and the memory that frees on each of its GPUs."""

    deed: Deed
    model: str
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The GPUs for a model, and the evictions before it is loaded, in order."""

    model: str
    devices: tuple[str, ...]
    steps: tuple[Step, ...] = ()


def place(need: Need, rooms: Sequence[DeviceRoom], residents: Sequence[Resident]) -> Plan:
    """Choose GPUs where the fewest models must be unloaded, then the fewest put to sleep, then with the tightest fit.

    `residents` does not include the model itself. Raises Unavailable with code `gpu_memory` and the calculation if it
    does not fit; a retry helps only when serving models become idle.
    """
    usable = [room for room in rooms if need.ranks == 1 or not room.is_slice]  # slices cannot communicate
    if len(usable) < need.ranks:
        kind = "GPUs" if need.ranks == 1 else "whole GPUs"
        raise Unavailable(
            f"model {need.model!r} needs {need.ranks} {kind} at once; there are {len(usable)}", code="gpu_memory"
        )
    best: tuple[tuple[int, int, int, tuple[str, ...]], Plan] | None = None
    for group in _groups(usable, need.ranks, residents):
        steps = _room_for(need.bytes_per_device, group, residents)
        if steps is None:
            continue
        unloads = sum(step.deed == "unload" for step in steps)
        left = sum(room.free_bytes for room in group)
        devices = tuple(room.uuid for room in group)
        rank = (unloads, len(steps), left, devices)
        if best is None or rank < best[0]:
            best = rank, Plan(need.model, devices, steps)
    if best is None:
        raise Unavailable(_refusal(need, usable, residents), code="gpu_memory")
    return best[1]


def wake(resident: Resident, rooms: Sequence[DeviceRoom], others: Sequence[Resident]) -> Plan:
    """Plan the waking of a model on its GPUs. Raises Unavailable as `place` does."""
    group = [room for room in rooms if room.uuid in resident.devices]
    grown = max(resident.awake_bytes - resident.asleep_bytes, 0)
    steps = _room_for(grown, group, others)
    if steps is None:
        need = Need(resident.model, grown, ranks=len(resident.devices))
        raise Unavailable(_refusal(need, group, others, what="more to wake"), code="gpu_memory")
    return Plan(resident.model, resident.devices, steps)


def _groups(rooms: Sequence[DeviceRoom], ranks: int, residents: Sequence[Resident]) -> Iterable[tuple[DeviceRoom, ...]]:
    """Yield the groups of GPUs to compare; if there are very many, only groups of those GPUs that could have the most
    room.
    """
    could = {room.uuid: room.free_bytes + _leaving(room.uuid, residents) for room in rooms}
    ordered = sorted(rooms, key=lambda room: (-could[room.uuid], room.uuid))
    for count, group in enumerate(combinations(ordered, ranks)):
        if count >= _MOST_CHOICES:
            return
        yield group


def _room_for(needed_bytes: int, group: Sequence[DeviceRoom], residents: Sequence[Resident]) -> tuple[Step, ...] | None:
    """Return the minimal evictions that free a number of bytes on each GPU; `None` if that is impossible.

    Least recently used models are evicted first, by sleep before unloading; unnecessary evictions are removed.
    """
    free = {room.uuid: room.free_bytes for room in group}
    here = sorted(
        (one for one in residents if one.may_leave and not free.keys().isdisjoint(one.devices)),
        key=lambda one: (one.last_used_ns, one.model),
    )
    asleep = [(one, _sleep(one)) for one in here if one.can_sleep and not one.is_asleep]
    gone = [(one, Step("unload", one.model, one.held_bytes)) for one in here]
    for allowed in (asleep, [*asleep, *gone]):
        chosen = _enough(needed_bytes, free, allowed)
        if chosen is not None:
            return _pruned(needed_bytes, free, chosen)
    return None


def _sleep(resident: Resident) -> Step:
    return Step("sleep", resident.model, max(resident.awake_bytes - resident.asleep_bytes, 0))


_Chosen = list[tuple[Resident, Step]]


def _enough(needed_bytes: int, free: dict[str, int], candidates: _Chosen) -> _Chosen | None:
    chosen: _Chosen = []
    for resident, step in candidates:
        if _fits(needed_bytes, free, chosen):
            break
        short = [uuid for uuid, room in _freed(free, chosen).items() if room < needed_bytes]
        if not set(short).isdisjoint(resident.devices):
            chosen.append((resident, step))
    return chosen if _fits(needed_bytes, free, chosen) else None


def _pruned(needed_bytes: int, free: dict[str, int], chosen: _Chosen) -> tuple[Step, ...]:
    """Remove unnecessary evictions, unloadings first, then of the most recently used."""
    kept = list(chosen)
    for one in sorted(reversed(chosen), key=lambda pair: pair[1].deed != "unload"):
        without = [other for other in kept if other is not one]
        if _fits(needed_bytes, free, without):
            kept = without
    unloaded = {step.model for _, step in kept if step.deed == "unload"}
    return tuple(step for _, step in kept if step.deed == "unload" or step.model not in unloaded)


def _fits(needed_bytes: int, free: dict[str, int], chosen: _Chosen) -> bool:
    return all(room >= needed_bytes for room in _freed(free, chosen).values())


def _freed(free: dict[str, int], chosen: _Chosen) -> dict[str, int]:
    """Return the free memory on each GPU after these evictions. A model counts once, with the larger amount."""
    most: dict[str, tuple[Resident, int]] = {}
    for resident, step in chosen:
        freed = max(step.freed_bytes, most[resident.model][1] if resident.model in most else 0)
        most[resident.model] = resident, freed
    room = dict(free)
    for resident, freed in most.values():
        for uuid in resident.devices:
            if uuid in room:
                room[uuid] += freed
    return room


def _leaving(uuid: str, residents: Sequence[Resident]) -> int:
    return sum(one.held_bytes for one in residents if one.may_leave and uuid in one.devices)


def _refusal(need: Need, rooms: Sequence[DeviceRoom], residents: Sequence[Resident], what: str = "on each") -> str:
    parts = {"weights": need.weight_bytes, "keys and values": need.kv_bytes, "overhead": need.overhead_bytes}
    sums = " + ".join(f"{name} {in_gib(size)}" for name, size in parts.items() if size)
    lines = []
    for room in rooms:
        stays = [one for one in residents if room.uuid in one.devices and not one.may_leave]
        held = ", ".join(f"{one.model} {in_gib(one.held_bytes)}" for one in stays) or "nothing that must stay"
        lines.append(
            f"{room.uuid}: {in_gib(room.total_bytes)}, {in_gib(room.free_bytes)} free, "
            f"{in_gib(_leaving(room.uuid, residents))} could be freed, in use by {held}"
        )
    return (
        f"model {need.model!r} needs {in_gib(need.bytes_per_device)} ({sums or 'nothing'}) {what} of {need.ranks} "
        f"GPU{'s' if need.ranks > 1 else ''}; {'; '.join(lines)}. Use more or larger GPUs, a smaller KV cache or a "
        "quantized model, or unload something"
    )


def in_gib(size: int) -> str:
    """Format bytes as GiB, for messages."""
    return f"{size / GIB:.1f} GiB"


def applied(plan: Plan, residents: Sequence[Resident]) -> list[Resident]:
    """Return the loaded models after a plan's evictions."""
    gone = {step.model for step in plan.steps if step.deed == "unload"}
    asleep = {step.model for step in plan.steps if step.deed == "sleep"}
    return [replace(one, is_asleep=True) if one.model in asleep else one for one in residents if one.model not in gone]
