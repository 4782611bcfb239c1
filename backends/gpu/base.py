"""What is known of a GPU at a moment, no matter who made it: the nouns, and the seam that each maker's library
fills.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

Vendor = Literal["nvidia", "amd"]
FaultScope = Literal["device", "program", "notice"]

PERIOD_SECONDS: Final = 1.0

# nvml.h, nvmlClocksEventReasons; an idle GPU's clocks are low for no reason one could remove.
THROTTLE_BITS: Final[Mapping[str, int]] = {
    "application_clocks": 0x2,
    "power_cap": 0x4,
    "hardware_slowdown": 0x8,
    "sync_boost": 0x10,
    "software_thermal": 0x20,
    "hardware_thermal": 0x40,
    "power_brake": 0x80,
    "display_clocks": 0x100,
}


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """A GPU, or a slice of one (MIG), that a program can be given. `parent` is the whole GPU of a slice."""

    uuid: str
    index: int
    name: str
    vendor: Vendor = "nvidia"
    driver: str = ""
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process that computes on a GPU. `is_ours` is `None` if it is of another PID namespace.

    `sm_ratio` is its part of the multiprocessors' time since the last sample, as far as the driver says.
    """

    pid: int
    memory_bytes: int | None = None
    is_ours: bool | None = None
    sm_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One GPU at one moment (Unix ns). `None` is what the device, its driver or our rights do not let us measure.

    Activities are parts of the time since the last sample, 0 to 1: `sm_activity` of the multiprocessors, averaged over
    them; `dram_activity` of the memory's bandwidth; `kernel_activity` is the part in which any kernel ran at all, on
    however few multiprocessors. NVML's `utilization.memory` is the part of time in which anything moved, says nothing
    of bandwidth, and stands in for none of them. `energy_joules` counts from the driver's start and may be some
    seconds old, as reading it is dear; ECC counts are over the device's life. `throttle_reasons` holds what holds the
    clocks down now, without idleness.
    """

    uuid: str
    at_ns: int
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules: float | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    kernel_activity: float | None = None
    sm_activity: float | None = None
    sm_occupancy: float | None = None
    tensor_activity: float | None = None
    dram_activity: float | None = None
    processes: tuple[DeviceProcess, ...] | None = None

    @property
    def other_processes(self) -> int | None:
        """Return the number of processes that are not ours; `None` if that cannot be told."""
        if self.processes is None or any(one.is_ours is None for one in self.processes):
            return None
        return sum(not one.is_ours for one in self.processes)

    @property
    def is_shared(self) -> bool | None:
        """Return whether another process computed here since the last sample.

        A process that is there and idle (a model asleep) takes no time from ours. Where the driver does not say who
        computes, one that is there may have.
        """
        others = self.other_processes
        if not others:
            return None if others is None else False
        ratios = [one.sm_ratio for one in self.processes or () if not one.is_ours]
        return any(ratio is None or ratio > 0 for ratio in ratios)


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """Something the driver says went wrong on a GPU. `xid` is NVIDIA's number; `None`: the device does not answer.

    `scope` says what is lost: the `device` until it is reset, the `program` that caused it, or nothing (`notice`).
    """

    uuid: str
    xid: int | None
    meaning: str
    scope: FaultScope

    @property
    def text(self) -> str:
        """Describe it for people."""
        number = "" if self.xid is None else f"XID {self.xid}, "
        return f"GPU {self.uuid}: {number}{self.meaning}"


@dataclass(frozen=True, slots=True)
class Round:
    """What one look at all GPUs found."""

    samples: tuple[DeviceSample, ...] = ()
    faults: tuple[DeviceFault, ...] = ()


class GpuReader(Protocol):
    """One maker's library. Called by one thread; no method waits for anything but the driver."""

    def devices(self) -> tuple[DeviceIdentity, ...]:
        """Return the GPUs and slices that are kept: at first all there are, which do not change while it is open."""

    def keep(self, uuids: Collection[str]) -> None:
        """Look at these only, from now on: each GPU costs milliseconds."""

    def look(self) -> Round:
        """Measure all that are kept. What cannot be measured is `None`; nothing is raised."""

    def close(self) -> None:
        """Close the library."""
