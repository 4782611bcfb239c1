"""NVIDIA's C library as it answered once, below `pynvml`: each device's answers, an error where it refused one."""

from collections.abc import Callable, Mapping
from ctypes import POINTER, c_void_p, cast
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pynvml

from backends.gpu.nvml import Activity, Nvml

GIB = 1 << 30
NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

# By function and the constants it is called with.
_NUMBERS = {
    ("nvmlDeviceGetPowerUsage",): "power_milliwatts",
    ("nvmlDeviceGetEnforcedPowerLimit",): "power_limit_milliwatts",
    ("nvmlDeviceGetTotalEnergyConsumption",): "energy_millijoules",
    ("nvmlDeviceGetTemperature", 0): "temperature_celsius",
    ("nvmlDeviceGetClockInfo", 1): "sm_clock_mhz",
    ("nvmlDeviceGetClockInfo", 2): "memory_clock_mhz",
    ("nvmlDeviceGetCurrentClocksThrottleReasons",): "throttle_reasons",
    ("nvmlDeviceGetTotalEccErrors", 0, 1): "ecc_corrected",
    ("nvmlDeviceGetTotalEccErrors", 1, 1): "ecc_uncorrected",
}
_GPM = {2: "sm_percent", 3: "occupancy_percent", 5: "tensor_percent", 10: "dram_percent"}


@dataclass
class Device:
    """One device's answers. An answer that is an `NVMLError` is returned as its code."""

    uuid: str = "GPU-1"
    name: str = "NVIDIA H200"
    memory: Any = (140 * GIB, 1 * GIB, 139 * GIB)
    older_memory_only: bool = False
    numbers: dict[str, Any] = field(default_factory=dict)
    processes: Any = field(default_factory=list)
    process_activity: Any = field(default_factory=list)
    activity: Any = None  # it has no GPM
    slices: "list[Device]" = field(default_factory=list)


class RecordedNvml:
    """The library. `asked` counts the questions by name; `faults_waiting` are reported once, by device from 1 on."""

    def __init__(self, *devices: Device, driver: str = "580.159.04", init: int = 0) -> None:
        self._driver = driver
        self._init = init
        self._devices = [*devices, *(one for device in devices for one in device.slices)]
        self._whole = devices
        self._registered: set[int] = set()
        self._samples: dict[int, tuple[int, int | None] | None] = {}  # of what each was taken
        self._made = 0
        self.faults_waiting: list[tuple[int, int]] = []
        self.asked: dict[str, int] = {}
        self.is_closed = False

    def open(self) -> Nvml:
        """Let `pynvml` call this library. The folder's conftest takes it away."""
        pynvml.nvmlLib = self
        pynvml._nvmlGetFunctionPointer_cache.clear()
        return Nvml()

    def __getattr__(self, name: str) -> Any:
        if any(key[0] == name for key in _NUMBERS):
            return partial(self._number, name)
        raise AttributeError(name)  # as of a driver that is older than a function

    def nvmlInitWithFlags(self, flags: int) -> int:
        return self._init

    def nvmlShutdown(self) -> int:
        assert not self._samples, "samples are left behind"
        self.is_closed = True
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, size: Any) -> int:
        text.value = self._driver.encode()
        return 0

    def nvmlDeviceGetCount_v2(self, out: Any) -> int:
        out._obj.value = len(self._whole)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, out: Any) -> int:
        return _point(out, index.value + 1)

    def nvmlDeviceGetUUID(self, device: Any, text: Any, size: Any) -> int:
        text.value = self._of(device).uuid.encode()
        return 0

    def nvmlDeviceGetName(self, device: Any, text: Any, size: Any) -> int:
        text.value = self._of(device).name.encode()
        return 0

    def nvmlDeviceGetMigMode(self, device: Any, now: Any, pending: Any) -> int:
        now._obj.value = bool(self._of(device).slices)
        return 0

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Any, out: Any) -> int:
        out._obj.value = 7
        return 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, place: Any, out: Any) -> int:
        slices = self._of(device).slices
        if place.value % 2 or place.value // 2 >= len(slices):  # every second place is empty
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        return _point(out, self._devices.index(slices[place.value // 2]) + 1)

    def nvmlDeviceGetGpuInstanceId(self, device: Any, out: Any) -> int:
        out._obj.value = device.value
        return 0

    def nvmlDeviceGetMemoryInfo_v2(self, device: Any, out: Any) -> int:
        if self._of(device).older_memory_only:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        assert out._obj.version == 0x02000028
        return self.nvmlDeviceGetMemoryInfo(device, out)

    def nvmlDeviceGetMemoryInfo(self, device: Any, out: Any) -> int:
        def write(answer: tuple[int, int, int]) -> None:
            out._obj.total, out._obj.used, out._obj.free = answer

        return self._answer("memory", self._of(device).memory, write)

    def nvmlDeviceGetUtilizationRates(self, device: Any, out: Any) -> int:
        return self._answer_number(device, "kernel_percent", partial(setattr, out._obj, "gpu"))

    def nvmlDeviceGetFieldValues(self, device: Any, count: Any, out: Any) -> int:
        (value,) = out._obj
        assert value.fieldId == 82
        value.nvmlReturn = self._answer_number(
            device, "memory_temperature_celsius", lambda found: setattr(value.value, "uiVal", found)
        )
        return 0

    def nvmlDeviceGetComputeRunningProcesses_v3(self, device: Any, count: Any, places: Any) -> int:
        found = self._of(device).processes
        if isinstance(found, pynvml.NVMLError) or places is None:
            room = partial(_make_room, count)
            return self._answer("processes", found, room) or (pynvml.NVML_ERROR_INSUFFICIENT_SIZE if found else 0)
        for place, (pid, held) in zip(places, found, strict=False):
            place.pid, place.usedGpuMemory = pid, (1 << 64) - 1 if held is None else held
        return _make_room(count, found)

    def nvmlDeviceGetProcessUtilization(self, device: Any, places: Any, count: Any, since: Any) -> int:
        answer = self._of(device).process_activity
        found = answer if isinstance(answer, pynvml.NVMLError) else [one for one in answer if one[1] > since.value]
        if isinstance(found, pynvml.NVMLError) or places is None:
            room = partial(_make_room, count, spare=2)
            return self._answer("process_activity", found, room) or (
                pynvml.NVML_ERROR_INSUFFICIENT_SIZE if found else 0
            )
        for place, (pid, at_us, percent) in zip(places, found, strict=False):
            place.pid, place.timeStamp, place.smUtil = pid, at_us, percent
        return 0

    def nvmlGpmQueryDeviceSupport(self, device: Any, out: Any) -> int:
        out._obj.isSupportedDevice = any(one.activity for one in (self._of(device), *self._of(device).slices))
        return 0

    def nvmlGpmSampleAlloc(self, out: Any) -> int:
        self._made += 1
        self._samples[self._made] = None
        return _point(out, self._made)

    def nvmlGpmSampleFree(self, sample: Any) -> int:
        del self._samples[_address(sample)]
        return 0

    def nvmlGpmSampleGet(self, device: Any, sample: Any) -> int:
        self._samples[_address(sample)] = device.value, None
        return 0

    def nvmlGpmMigSampleGet(self, device: Any, instance: int, sample: Any) -> int:
        self._samples[_address(sample)] = device.value, instance
        return 0

    def nvmlGpmMetricsGet(self, out: Any) -> int:
        question = out._obj
        before, now = (self._samples[_address(one)] for one in (question.sample1, question.sample2))
        assert question.version == 1 and now is not None and before == now
        assert _address(question.sample1) != _address(question.sample2)

        def write(answer: Activity) -> None:
            for metric in question.metrics[: question.numMetrics]:
                value = getattr(answer, _GPM[metric.metricId])
                metric.nvmlReturn, metric.value = (pynvml.NVML_ERROR_NOT_SUPPORTED, 0) if value is None else (0, value)

        return self._answer("activity", self._devices[(now[1] or now[0]) - 1].activity or NOT_SUPPORTED, write)

    def nvmlEventSetCreate(self, out: Any) -> int:
        return _point(out, 1)

    def nvmlEventSetFree(self, events: Any) -> int:
        self._registered.clear()
        return 0

    def nvmlDeviceRegisterEvents(self, device: Any, kinds: Any, events: Any) -> int:
        self._registered.add(device.value)
        return 0

    def nvmlEventSetWait_v2(self, events: Any, out: Any, milliseconds: Any) -> int:
        if not self.faults_waiting:
            return int(pynvml.NVML_ERROR_TIMEOUT)
        address, xid = self.faults_waiting.pop(0)
        assert address in self._registered
        out._obj.device = cast(address, pynvml.c_nvmlDevice_t)
        out._obj.eventType, out._obj.eventData = 8, xid
        return 0

    def _of(self, device: Any) -> Device:
        return self._devices[_address(device) - 1]

    def _number(self, name: str, device: Any, *rest: Any) -> int:
        *constants, out = rest
        quantity = _NUMBERS[(name, *(one.value for one in constants))]
        return self._answer_number(device, quantity, partial(setattr, out._obj, "value"))

    def _answer_number(self, device: Any, quantity: str, write: Callable[[int], None]) -> int:
        return self._answer(quantity, self._of(device).numbers.get(quantity, NOT_SUPPORTED), write)

    def _answer(self, name: str, answer: Any, write: Callable[[Any], Any]) -> int:
        self.asked[name] = self.asked.get(name, 0) + 1
        if isinstance(answer, pynvml.NVMLError):
            return int(answer.value)
        write(answer)
        return 0


def _point(out: Any, address: int) -> int:
    cast(out, POINTER(c_void_p))[0] = address
    return 0


def _address(pointer: Any) -> int:
    return cast(pointer, c_void_p).value or 0


def _make_room(count: Any, found: list[Any], spare: int = 0) -> int:
    count._obj.value = len(found) + spare if found else 0
    return 0


def answer(row: Mapping[str, Any]) -> Any:
    """Return a recorded answer: what was said, or the error it was."""
    said = row["answer"]
    return pynvml.NVMLError(said["error"]) if isinstance(said, dict) and "error" in said else said
