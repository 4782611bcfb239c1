"""NVIDIA GPUs as samples. A value that a device does not support is requested once and is `None` from then on."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, TypeVar

import pynvml

from backends.gpu.base import THROTTLE_BITS, DeviceFault, DeviceIdentity, DeviceProcess, DeviceSample, Round
from backends.gpu.nvml import Activity, Handle, Nvml
from backends.gpu.own_processes import OwnProcesses
from backends.gpu.xid import meaning_of

AnswerT = TypeVar("AnswerT")

_PERMANENT: Final = frozenset(
    {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)
_LOST: Final = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
# Values that are read only at every n-th round. The energy counter costs 3 ms of a core (H200, r580), as much as all
# others together, and is accurate only over 5 s or more (arXiv 2312.02741). Errors and limits change rarely.
_EVERY: Final[Mapping[str, int]] = {
    "energy_millijoules": 5,
    "ecc_corrected": 60,
    "ecc_uncorrected": 60,
    "power_limit_milliwatts": 60,
}


class NvmlReader:
    """`GpuReader` for NVIDIA. `now_ns` returns Unix time. Rarely read values are repeated from their last reading."""

    def __init__(self, nvml: Nvml, own: OwnProcesses | None = None, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._nvml = nvml
        self._own = own or OwnProcesses()
        self._now_ns = now_ns
        self._never: set[tuple[Handle, str]] = set()  # not supported
        self._seen_us: dict[Handle, int] = {}  # time of the last activity per process that was read
        self._lost: set[Handle] = set()
        self._looks = 0
        self._kept: dict[tuple[Handle, str], int | None] = {}  # last readings of rarely read values
        self._identities = self._find()
        self._uuids = {handle: one.uuid for handle, one in self._identities.items()}  # of all devices

    def devices(self) -> tuple[DeviceIdentity, ...]:
        """Return the GPUs, each followed by its MIG slices."""
        return tuple(self._identities.values())

    def keep(self, uuids: Collection[str]) -> None:
        """Restrict measurements to these GPUs."""
        self._identities = {handle: one for handle, one in self._identities.items() if one.uuid in uuids}

    def look(self) -> Round:
        """Measure the selected GPUs. A lost device is reported once and not measured again."""
        faults = self._faults()
        samples = []
        for handle, identity in self._identities.items():
            if handle in self._lost:
                samples.append(DeviceSample(identity.uuid, self._now_ns()))
                continue
            try:
                samples.append(self._sample(handle, identity))
            except _Lost:
                self._lost.add(handle)
                faults.append(DeviceFault(identity.uuid, None, "it does not answer any more", "device"))
                samples.append(DeviceSample(identity.uuid, self._now_ns()))
        self._looks += 1
        return Round(tuple(samples), tuple(faults))

    def close(self) -> None:
        """Shut the library down."""
        self._nvml.close()

    def _find(self) -> dict[Handle, DeviceIdentity]:
        driver = self._nvml.driver()
        found: dict[Handle, DeviceIdentity] = {}
        for index, handle in enumerate(self._nvml.devices()):
            whole = DeviceIdentity(self._nvml.uuid(handle), index, self._nvml.name(handle), "nvidia", driver)
            found[handle] = whole
            for slice_handle in self._nvml.slices(handle):
                found[slice_handle] = replace(
                    whole,
                    uuid=self._nvml.uuid(slice_handle),
                    name=self._nvml.name(slice_handle),
                    parent=whole.uuid,
                )
        return found

    def _sample(self, handle: Handle, identity: DeviceIdentity) -> DeviceSample:
        total, used, free = self._ask(handle, "memory", self._nvml.memory) or (None, None, None)
        activity = self._ask(handle, "activity", self._nvml.activity) or Activity(None, None, None, None)
        reasons = self._number(handle, "throttle_reasons")
        return DeviceSample(
            uuid=identity.uuid,
            at_ns=self._now_ns(),
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_free_bytes=free,
            power_watts=_scaled(self._number(handle, "power_milliwatts"), 1000),
            power_limit_watts=_scaled(self._number(handle, "power_limit_milliwatts"), 1000),
            energy_joules=_scaled(self._number(handle, "energy_millijoules"), 1000),
            temperature_celsius=self._number(handle, "temperature_celsius"),
            memory_temperature_celsius=self._number(handle, "memory_temperature_celsius"),
            sm_clock_mhz=self._number(handle, "sm_clock_mhz"),
            memory_clock_mhz=self._number(handle, "memory_clock_mhz"),
            throttle_reasons=None if reasons is None else throttle_names(reasons),
            ecc_corrected=self._number(handle, "ecc_corrected"),
            ecc_uncorrected=self._number(handle, "ecc_uncorrected"),
            kernel_activity=_scaled(self._number(handle, "kernel_percent"), 100),
            sm_activity=_scaled(activity.sm_percent, 100),
            sm_occupancy=_scaled(activity.occupancy_percent, 100),
            tensor_activity=_scaled(activity.tensor_percent, 100),
            dram_activity=_scaled(activity.dram_percent, 100),
            processes=self._processes(handle),
        )

    def _processes(self, handle: Handle) -> tuple[DeviceProcess, ...] | None:
        found = self._ask(handle, "processes", self._nvml.processes)
        if found is None:
            return None
        processes = [DeviceProcess(pid, held, self._own.is_ours(pid)) for pid, held in found]
        if all(one.is_ours for one in processes):
            return tuple(processes)  # no other program, so activity per process is not needed
        ratios = self._activity_by_process(handle)
        return tuple(replace(one, sm_ratio=None if ratios is None else ratios.get(one.pid, 0.0)) for one in processes)

    def _activity_by_process(self, handle: Handle) -> dict[int, float] | None:
        """Return each process's share of the multiprocessors since the last round; `None` if it is not reported."""
        since_us = self._seen_us.get(handle, self._now_ns() // 1000 - 1_000_000)
        if (handle, "process_activity") in self._never:
            return None
        try:
            found = self._nvml.process_activity(handle, since_us)
        except pynvml.NVMLError as error:
            self._note(handle, "process_activity", error)
            return None
        self._seen_us[handle] = max([since_us, *(at_us for _, at_us, _ in found)])
        ratios: dict[int, float] = {}
        for pid, _, percent in found:
            ratios[pid] = max(ratios.get(pid, 0.0), percent / 100)
        return ratios

    def _faults(self) -> list[DeviceFault]:
        try:
            found = self._nvml.faults()
        except pynvml.NVMLError:
            return []  # the samples show whether a device is lost
        faults = []
        for handle, xid in found:
            scope, meaning = meaning_of(xid)
            faults.append(DeviceFault(self._uuids.get(handle, "unknown"), xid, meaning, scope))
        return faults

    def _number(self, handle: Handle, quantity: str) -> int | None:
        every = _EVERY.get(quantity, 1)
        if self._looks % every and (handle, quantity) in self._kept:
            return self._kept[handle, quantity]
        found = self._ask(handle, quantity, lambda one: self._nvml.number(one, quantity))
        if every > 1:
            self._kept[handle, quantity] = found
        return found

    def _ask(self, handle: Handle, what: str, question: Callable[[Handle], AnswerT]) -> AnswerT | None:
        if (handle, what) in self._never:
            return None
        try:
            return question(handle)
        except pynvml.NVMLError as error:
            self._note(handle, what, error)
            return None

    def _note(self, handle: Handle, what: str, error: pynvml.NVMLError) -> None:
        if error.value in _LOST:
            raise _Lost from error
        if error.value in _PERMANENT:
            self._never.add((handle, what))


class _Lost(Exception):
    """The device does not respond any more."""


def throttle_names(reasons: int) -> tuple[str, ...]:
    """Return the names of the reasons that limit the clocks, from the driver's bits; empty if only idleness is set."""
    return tuple(name for name, bit in THROTTLE_BITS.items() if reasons & bit)


def _scaled(value: float | None, unit: int) -> float | None:
    return None if value is None else value / unit
