"""Vendor-independent types of GPU measurements, and the interface that each vendor's library implements."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

Vendor = Literal["nvidia", "amd"]
FaultScope = Literal["device", "program", "notice"]

PERIOD_SECONDS: Final = 1.0

# nvml.h, nvmlClocksEventReasons, without idleness, which is no fault.
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
    """A GPU, or a slice of one (MIG), that can be assigned to a program. `parent` is the UUID of a slice's GPU."""

    uuid: str
    index: int
    name: str
    vendor: Vendor = "nvidia"
    driver: str = ""
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process that computes on a GPU. `is_ours` is `None` for a process in another PID namespace.

    `sm_ratio` is its share of the multiprocessors' time since the last sample; `None` if the driver does not report it.
    """

    pid: int
    memory_bytes: int | None = None
    is_ours: bool | None = None
    sm_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One GPU's measurements at one moment (Unix ns). `None`: not supported by the device or its driver, or not
    permitted.

    Activities are fractions (0 to 1) since the last sample: `sm_activity` is the multiprocessors' busy time, averaged
    over them; `dram_activity` the used memory bandwidth; `kernel_activity` the time in which any kernel ran, on however
    few multiprocessors. NVML's `utilization.memory` is not used: it is the time in which any memory was accessed.
    `energy_joules` counts from the driver's start and may be some seconds old, because reading it is slow. ECC counts
    are over the device's life. `throttle_reasons` are what limits the clocks now, except idleness.
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
        """Return the number of processes of other programs; `None` if it is unknown."""
        if self.processes is None or any(one.is_ours is None for one in self.processes):
            return None
        return sum(not one.is_ours for one in self.processes)

    @property
    def is_shared(self) -> bool | None:
        """Return whether another program computed on this GPU since the last sample; `None` if unknown.

        An idle process, such as a sleeping model's, does not count. If the driver does not report activity per process,
        every other process counts.
        """
        others = self.other_processes
        if not others:
            return None if others is None else False
        ratios = [one.sm_ratio for one in self.processes or () if not one.is_ours]
        return any(ratio is None or ratio > 0 for ratio in ratios)


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """A fault of a GPU that its driver reported. `xid` is NVIDIA's number; `None`: the device does not respond.

    `scope` is what is lost: the `device` until it is reset, the `program` that caused the fault, or nothing (`notice`).
    """

    uuid: str
    xid: int | None
    meaning: str
    scope: FaultScope

    @property
    def text(self) -> str:
        """Return a description for people."""
        number = "" if self.xid is None else f"XID {self.xid}, "
        return f"GPU {self.uuid}: {number}{self.meaning}"


@dataclass(frozen=True, slots=True)
class Round:
    """The result of measuring all GPUs once."""

    samples: tuple[DeviceSample, ...] = ()
    faults: tuple[DeviceFault, ...] = ()


class GpuReader(Protocol):
    """A vendor's library. Called by one thread; its methods block only for the driver."""

    def devices(self) -> tuple[DeviceIdentity, ...]:
        """Return the GPUs and slices that are measured: all of the machine until `keep` selects some."""

    def keep(self, uuids: Collection[str]) -> None:
        """Measure only these GPUs from now on: each one costs milliseconds."""

    def look(self) -> Round:
        """Measure all selected GPUs. Values that cannot be measured are `None`; raises nothing."""

    def close(self) -> None:
        """Close the library."""
