"""NVIDIA's management library (NVML) by `pynvml` (nvidia-ml-py), reduced to what the reader needs."""

from collections.abc import Callable, Mapping
from ctypes import c_void_p, cast
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from contracts.errors import Unavailable

Handle = int  # a device's address in the library

_MAX_FAULTS: Final = 64  # maximum number read at once
_GPM_METRICS: Final = (
    pynvml.NVML_GPM_METRIC_SM_UTIL,
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
)


@dataclass(frozen=True, slots=True)
class Activity:
    """Activity since the last call in percent, from GPM (GPU performance monitoring, Hopper and later)."""

    sm_percent: float | None
    occupancy_percent: float | None
    tensor_percent: float | None
    dram_percent: float | None


class Nvml:
    """Connection to NVIDIA's driver. Every method raises `pynvml.NVMLError`.

    Raises Unavailable, code `gpu_driver_missing`, if the library or the driver is missing.
    """

    def __init__(self) -> None:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise Unavailable(
                f"NVIDIA's driver does not answer: {error}; install it, or in a container start with the GPUs passed "
                "through",
                code="gpu_driver_missing",
            ) from error
        self._parents: dict[Handle, Handle] = {}  # each slice's GPU
        self._events: Any = None
        # GPM's sample buffers by device: the last sample, and the buffer for the next.
        self._samples: dict[Handle, tuple[Any, Any]] = {}
        self._question = pynvml.c_nvmlGpmMetricsGet_t(pynvml.NVML_GPM_METRICS_GET_VERSION, len(_GPM_METRICS))

    def driver(self) -> str:
        """Return the driver's version."""
        return str(pynvml.nvmlSystemGetDriverVersion())

    def devices(self) -> list[Handle]:
        """Return the whole GPUs in the driver's order, and subscribe to their faults."""
        found = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        handles = [_handle(pointer) for pointer in found]
        self._listen(handles)
        return handles

    def slices(self, handle: Handle) -> list[Handle]:
        """Return a GPU's MIG devices; empty if MIG is off or not supported."""
        device = c_void_p(handle)
        try:
            is_on = pynvml.nvmlDeviceGetMigMode(device)[0]
        except pynvml.NVMLError:
            return []
        found = []
        for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(device) if is_on else 0):
            try:
                found.append(_handle(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, place)))
            except pynvml.NVMLError_NotFound:  # no slice at this index
                continue
        self._parents |= dict.fromkeys(found, handle)
        return found

    def uuid(self, handle: Handle) -> str:
        """Return the device's permanent id: "GPU-..." or "MIG-..."."""
        return str(pynvml.nvmlDeviceGetUUID(c_void_p(handle)))

    def name(self, handle: Handle) -> str:
        """Return the product's name."""
        return str(pynvml.nvmlDeviceGetName(c_void_p(handle)))

    def memory(self, handle: Handle) -> tuple[int, int, int]:
        """Return (total, used, free) bytes. Memory reserved by the driver is in neither used nor free."""
        try:
            memory = pynvml.nvmlDeviceGetMemoryInfo(c_void_p(handle), pynvml.nvmlMemory_v2)
        except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported):  # MIG devices, older drivers
            memory = pynvml.nvmlDeviceGetMemoryInfo(c_void_p(handle))
        return memory.total, memory.used, memory.free

    def number(self, handle: Handle, quantity: str) -> int:
        """Return a value of NUMBERS by its name, which ends with the unit."""
        return int(NUMBERS[quantity](c_void_p(handle)))

    def processes(self, handle: Handle) -> list[tuple[int, int | None]]:
        """Return (pid, bytes) of each process with a compute context; bytes are `None` if the driver does not report
        them.
        """
        found = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(c_void_p(handle))
        return [(one.pid, one.usedGpuMemory) for one in found]

    def process_activity(self, handle: Handle, since_us: int) -> list[tuple[int, int, int]]:
        """Return (pid, Unix microseconds, percent of multiprocessor time) of each process since `since_us`."""
        try:
            found = pynvml.nvmlDeviceGetProcessUtilization(c_void_p(handle), since_us)
        except pynvml.NVMLError as error:
            if error.value in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND):  # no process computed
                return []
            raise
        # Entries that the driver did not fill have neither process nor time.
        return [(one.pid, one.timeStamp, one.smUtil) for one in found if one.timeStamp > since_us]

    def activity(self, handle: Handle) -> Activity:
        """Return GPM's activity since the last call. The first call raises NVML_ERROR_NOT_READY."""
        parent = self._parents.get(handle)
        device = c_void_p(parent or handle)
        instance = pynvml.nvmlDeviceGetGpuInstanceId(c_void_p(handle)) if parent else None
        is_first = handle not in self._samples
        if is_first:
            if not pynvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            self._samples[handle] = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
        before, now = self._samples[handle]
        if instance is None:
            pynvml.nvmlGpmSampleGet(device, now)
        else:
            pynvml.nvmlGpmMigSampleGet(device, instance, now)
        self._samples[handle] = now, before
        if is_first:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_READY)
        question = self._question
        question.sample1, question.sample2 = before, now
        for place, metric in enumerate(_GPM_METRICS):
            question.metrics[place].metricId = metric
        found = pynvml.nvmlGpmMetricsGet(question).metrics[: len(_GPM_METRICS)]
        return Activity(*(None if one.nvmlReturn or not 0 <= one.value <= 100 else one.value for one in found))

    def faults(self) -> list[tuple[Handle, int]]:
        """Return (device, XID) of the faults since the last call, without blocking."""
        found: list[tuple[Handle, int]] = []
        while self._events is not None and len(found) < _MAX_FAULTS:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError_Timeout:
                break
            if event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                found.append((_handle(event.device), event.eventData))
        return found

    def close(self) -> None:
        """Free GPM's buffers and the event set, and shut the library down."""
        for sample in (one for pair in self._samples.values() for one in pair):
            pynvml.nvmlGpmSampleFree(sample)
        self._samples = {}
        if self._events is not None:
            pynvml.nvmlEventSetFree(self._events)
            self._events = None
        pynvml.nvmlShutdown()

    def _listen(self, handles: list[Handle]) -> None:
        """Subscribe to faults. If the driver or a virtual machine does not support that, `faults` stays empty."""
        try:
            self._events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return
        for handle in handles:
            try:
                pynvml.nvmlDeviceRegisterEvents(c_void_p(handle), pynvml.nvmlEventTypeXidCriticalError, self._events)
            except pynvml.NVMLError:
                continue  # other devices may support it


def _handle(pointer: Any) -> Handle:
    return cast(pointer, c_void_p).value or 0


def _memory_temperature(device: c_void_p) -> int:
    (field,) = pynvml.nvmlDeviceGetFieldValues(device, [pynvml.NVML_FI_DEV_MEMORY_TEMP])
    if field.nvmlReturn:
        raise pynvml.NVMLError(field.nvmlReturn)
    return int(field.value.uiVal)


NUMBERS: Final[Mapping[str, Callable[[c_void_p], int]]] = {
    "power_milliwatts": pynvml.nvmlDeviceGetPowerUsage,
    "power_limit_milliwatts": pynvml.nvmlDeviceGetEnforcedPowerLimit,
    "energy_millijoules": pynvml.nvmlDeviceGetTotalEnergyConsumption,
    "temperature_celsius": lambda one: pynvml.nvmlDeviceGetTemperature(one, pynvml.NVML_TEMPERATURE_GPU),
    "memory_temperature_celsius": _memory_temperature,
    "sm_clock_mhz": lambda one: pynvml.nvmlDeviceGetClockInfo(one, pynvml.NVML_CLOCK_SM),
    "memory_clock_mhz": lambda one: pynvml.nvmlDeviceGetClockInfo(one, pynvml.NVML_CLOCK_MEM),
    "throttle_reasons": pynvml.nvmlDeviceGetCurrentClocksThrottleReasons,
    "ecc_corrected": lambda one: pynvml.nvmlDeviceGetTotalEccErrors(one, 0, pynvml.NVML_AGGREGATE_ECC),
    "ecc_uncorrected": lambda one: pynvml.nvmlDeviceGetTotalEccErrors(one, 1, pynvml.NVML_AGGREGATE_ECC),
    "kernel_percent": lambda one: pynvml.nvmlDeviceGetUtilizationRates(one).gpu,
}
