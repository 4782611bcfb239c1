"""GPU sensors over time: activity, memory, power, temperature. A missing sensor is `None`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Scope
from backends.store.client import Row, StoreClient
from contracts.errors import InvalidRequest

SAMPLES_KEPT: Final = timedelta(days=14)
_MARGIN: Final = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class Sensors:
    """One GPU in one time step. Activities are shares of its time, 0 to 1; `None`: not measurable or not measured."""

    kernel: float | None = None
    sm: float | None = None
    tensor: float | None = None
    dram: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    sm_clock_mhz: float | None = None
    throttle_bits: int = 0
    ecc_uncorrected: int | None = None
    xid: int | None = None


NAMES: Final = ("kernel", "sm", "tensor", "dram", "power_watts", "temperature_celsius", "memory_used_bytes")


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU: its UUID, its model, and one entry of `points` per time step."""

    device: str
    model: str
    replica: str
    points: tuple[Sensors, ...]

    def has(self, name: str) -> bool:
        """Return whether a sensor was read at least once."""
        return any(getattr(point, name) is not None for point in self.points)

    def mean(self, name: str) -> float | None:
        """Return the mean of a sensor over the steps in which it was read."""
        values = [value for point in self.points if (value := getattr(point, name)) is not None]
        return sum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True)
class SensorSeries:
    """All GPUs that were sampled, over time `steps` (starts, UTC)."""

    step: timedelta
    steps: tuple[datetime, ...]
    devices: tuple[Device, ...] = field(default_factory=tuple)


def gpu_sensors(store: StoreClient, scope: Scope) -> SensorSeries:
    """Return the GPUs' sensors in a scope's range, of all tenants: for callers who may see the whole installation.

    Raises InvalidRequest if samples are no longer stored (14 days), StoreUnavailable.
    """
    if scope.asked_at - scope.start > SAMPLES_KEPT + _MARGIN:
        raise InvalidRequest("GPU sensors are kept for 14 days; choose a later range", param="from")
    covered, starts = scope.covered, scope.step_starts
    places = {start: place for place, start in enumerate(starts)}
    parameters = {
        "start": covered.start_s,
        "end": covered.end_s,
        "step": starts.step,
        "origin": scope.step_origin,
    }
    found: dict[str, tuple[str, str, list[Sensors]]] = {}
    for row in store.query(query("gpu_sensors"), parameters):
        names = (text_of(row["model_label"]), text_of(row["replica_label"]))
        points = found.setdefault(text_of(row["device_label"]), (*names, [Sensors()] * len(starts)))[2]
        points[places[number_of(row["step_start"])]] = _sensors(row)
    devices = tuple(
        Device(device, model, replica, tuple(points)) for device, (model, replica, points) in sorted(found.items())
    )
    return SensorSeries(timedelta(seconds=starts.step), _moments(starts), devices)


def _moments(starts: Sequence[int]) -> tuple[datetime, ...]:
    return tuple(datetime.fromtimestamp(start, UTC) for start in starts)


def _sensors(row: Row) -> Sensors:
    def real(column: str) -> float | None:
        value = row[column]
        return float(value) if isinstance(value, int | float) else None

    def whole(column: str) -> int | None:
        return None if row[column] is None else number_of(row[column])

    return Sensors(
        kernel=real("kernel_mean"),
        sm=real("sm_mean"),
        tensor=real("tensor_mean"),
        dram=real("dram_mean"),
        power_watts=real("power_mean"),
        temperature_celsius=real("temperature_most"),
        memory_used_bytes=real("memory_mean"),
        memory_total_bytes=real("memory_total"),
        sm_clock_mhz=real("clock_least"),
        throttle_bits=number_of(row["throttled"]),
        ecc_uncorrected=whole("ecc_most"),
        xid=whole("xid_last"),
    )
