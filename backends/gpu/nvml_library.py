"""NVIDIA's management library through ctypes: signatures and structures as `nvml.h` has them, and nothing else.

Written here rather than taken from a package so that whichever environment an engine host runs in has it.
"""

import ctypes
from collections.abc import Mapping
from ctypes import Structure, byref, c_double, c_int64, c_uint, c_uint32, c_ulonglong, c_void_p
from typing import Any, Final

from backends.gpu.nvml import (
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    NOT_FOUND,
    NOT_SUPPORTED,
    TIMEOUT,
    Activity,
    Handle,
    NvmlError,
    Quantity,
)
from backends.gpu.nvml_gpm import Gpm
from contracts.errors import Unavailable

_LIBRARY: Final = "libnvidia-ml.so.1"
_TEXT_BYTES: Final = 96
_MEMORY_V2: Final = 0x02000028
_XID_EVENT: Final = 0x8
_MAX_FAULTS: Final = 64  # taken in one round
_SPARE_PROCESSES: Final = 8  # those that may have started between the question of how many and who
_MEMORY_TEMPERATURE_FIELD: Final = 82
_UNKNOWN_BYTES: Final = (1 << 64) - 1

# Function, constants before the answer, type of the answer.
_NUMBERS: Final[Mapping[Quantity, tuple[str, tuple[int, ...], Any]]] = {
    "power_milliwatts": ("nvmlDeviceGetPowerUsage", (), c_uint),
    "power_limit_milliwatts": ("nvmlDeviceGetEnforcedPowerLimit", (), c_uint),
    "energy_millijoules": ("nvmlDeviceGetTotalEnergyConsumption", (), c_ulonglong),
    "temperature_celsius": ("nvmlDeviceGetTemperature", (0,), c_uint),
    "sm_clock_mhz": ("nvmlDeviceGetClockInfo", (1,), c_uint),
    "memory_clock_mhz": ("nvmlDeviceGetClockInfo", (2,), c_uint),
    "throttle_reasons": ("nvmlDeviceGetCurrentClocksThrottleReasons", (), c_ulonglong),
    "ecc_corrected": ("nvmlDeviceGetTotalEccErrors", (0, 1), c_ulonglong),
    "ecc_uncorrected": ("nvmlDeviceGetTotalEccErrors", (1, 1), c_ulonglong),
}


class _Memory(Structure):
    _fields_ = [
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    ]


class _MemoryV1(Structure):  # of MIG devices, which the second version is not offered for everywhere
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class _Process(Structure):
    _fields_ = [("pid", c_uint), ("memory", c_ulonglong), ("gpu_instance", c_uint), ("compute_instance", c_uint)]


class _ProcessActivity(Structure):
    _fields_ = [
        ("pid", c_uint),
        ("time_us", c_ulonglong),
        ("sm", c_uint),
        ("memory", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
    ]


class _Rates(Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class _Event(Structure):
    _fields_ = [
        ("device", c_void_p),
        ("kind", c_ulonglong),
        ("data", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    ]


class _Value(ctypes.Union):
    _fields_ = [("double", c_double), ("unsigned", c_uint), ("long", c_ulonglong)]


class _Field(Structure):
    _fields_ = [
        ("id", c_uint32),
        ("scope", c_uint32),
        ("time_us", c_int64),
        ("latency_us", c_int64),
        ("kind", c_uint),
        ("result", c_uint),
        ("value", _Value),
    ]


class NvmlLibrary:
    """Implements `Nvml`. Raises Unavailable, code `gpu_driver_missing`, where there is no library or no driver."""

    def __init__(self, path: str = _LIBRARY) -> None:
        try:
            self._dll = ctypes.CDLL(path)
        except OSError as error:
            raise _missing(f"{path} cannot be loaded") from error
        try:
            self._call("nvmlInit_v2")
        except NvmlError as error:
            reason = "the driver is not loaded" if error.code == DRIVER_NOT_LOADED else str(error)
            raise _missing(reason) from error
        self._handles: dict[Handle, c_void_p] = {}
        self._parents: dict[Handle, Handle] = {}  # of slices
        self._events: c_void_p | None = None
        self._gpm = Gpm(self._call)

    def driver(self) -> str:
        """Give the driver's version."""
        return self._text("nvmlSystemGetDriverVersion")

    def devices(self) -> list[Handle]:
        """Give the whole GPUs, in the driver's order, and begin to listen for their faults."""
        count = c_uint()
        self._call("nvmlDeviceGetCount_v2", byref(count))
        found = []
        for index in range(count.value):
            pointer = c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(pointer))
            found.append(self._keep(pointer))
        self._listen(found)
        return found

    def slices(self, handle: Handle) -> list[Handle]:
        """Give a GPU's MIG devices; none where MIG is off or unknown to it."""
        current, pending = c_uint(), c_uint()
        try:
            self._call("nvmlDeviceGetMigMode", self._handles[handle], byref(current), byref(pending))
        except NvmlError:
            return []
        if not current.value:
            return []
        count = c_uint()
        self._call("nvmlDeviceGetMaxMigDeviceCount", self._handles[handle], byref(count))
        found = []
        for place in range(count.value):
            pointer = c_void_p()
            try:
                self._call("nvmlDeviceGetMigDeviceHandleByIndex", self._handles[handle], c_uint(place), byref(pointer))
            except NvmlError as error:
                if error.code == NOT_FOUND:  # a place without a slice
                    continue
                raise
            found.append(self._keep(pointer))
            self._parents[found[-1]] = handle
        return found

    def uuid(self, handle: Handle) -> str:
        """Give "GPU-..." or "MIG-..."."""
        return self._text("nvmlDeviceGetUUID", self._handles[handle])

    def name(self, handle: Handle) -> str:
        """Give the product's name."""
        return self._text("nvmlDeviceGetName", self._handles[handle])

    def memory(self, handle: Handle) -> tuple[int, int, int]:
        """Give (total, used, free) bytes."""
        memory = _Memory(version=_MEMORY_V2)
        try:
            self._call("nvmlDeviceGetMemoryInfo_v2", self._handles[handle], byref(memory))
        except NvmlError as error:
            if error.code not in (FUNCTION_NOT_FOUND, NOT_SUPPORTED):
                raise
            older = _MemoryV1()
            self._call("nvmlDeviceGetMemoryInfo", self._handles[handle], byref(older))
            return older.total, older.used, older.free
        return memory.total, memory.used, memory.free

    def number(self, handle: Handle, quantity: Quantity) -> int:
        """Give one reading, in the unit its name says."""
        if quantity == "kernel_percent":
            rates = _Rates()
            self._call("nvmlDeviceGetUtilizationRates", self._handles[handle], byref(rates))
            return int(rates.gpu)
        if quantity == "memory_temperature_celsius":
            return self._field(handle, _MEMORY_TEMPERATURE_FIELD)
        function, constants, kind = _NUMBERS[quantity]
        answer = kind()
        self._call(function, self._handles[handle], *(c_uint(one) for one in constants), byref(answer))
        return int(answer.value)

    def processes(self, handle: Handle) -> list[tuple[int, int | None]]:
        """Give (pid, bytes) of those with a compute context."""
        function = "nvmlDeviceGetComputeRunningProcesses_v3"
        room = _SPARE_PROCESSES
        while True:
            count, found = c_uint(room), (_Process * room)()
            try:
                self._call(function, self._handles[handle], byref(count), found)
                break
            except NvmlError as error:
                if error.code != INSUFFICIENT_SIZE:
                    raise
                room = count.value + _SPARE_PROCESSES
        return [(one.pid, None if one.memory == _UNKNOWN_BYTES else one.memory) for one in found[: count.value]]

    def process_activity(self, handle: Handle, since_us: int) -> list[tuple[int, int, int]]:
        """Give (pid, Unix microseconds, percent of multiprocessor time) since a moment."""
        function = "nvmlDeviceGetProcessUtilization"
        room = _SPARE_PROCESSES
        while True:
            count, found = c_uint(room), (_ProcessActivity * room)()
            try:
                self._call(function, self._handles[handle], found, byref(count), c_ulonglong(since_us))
                break
            except NvmlError as error:
                if error.code != INSUFFICIENT_SIZE or count.value <= room:
                    raise
                room = count.value + _SPARE_PROCESSES
        # Places the driver did not fill have no process and no time.
        return [(one.pid, one.time_us, one.sm) for one in found[: count.value] if one.time_us > since_us]

    def activity(self, handle: Handle) -> Activity:
        """Give GPM's answer for the time since the last call."""
        parent = self._parents.get(handle)
        if parent is None:
            return self._gpm.activity(handle, self._handles[handle])
        instance = c_uint()
        self._call("nvmlDeviceGetGpuInstanceId", self._handles[handle], byref(instance))
        return self._gpm.activity(handle, self._handles[parent], instance.value)

    def faults(self) -> list[tuple[Handle, int]]:
        """Give (device, XID) of the faults since the last call, without waiting."""
        found: list[tuple[Handle, int]] = []
        while self._events is not None and len(found) < _MAX_FAULTS:
            event = _Event()
            try:
                self._call("nvmlEventSetWait_v2", self._events, byref(event), c_uint(0))
            except NvmlError as error:
                if error.code == TIMEOUT:
                    break
                raise
            if event.kind & _XID_EVENT:
                found.append((event.device or 0, event.data))
        return found

    def close(self) -> None:
        """Give back what was taken and shut the library down."""
        self._gpm.close()
        if self._events is not None:
            self._call("nvmlEventSetFree", self._events)
            self._events = None
        self._call("nvmlShutdown")

    def _listen(self, handles: list[Handle]) -> None:
        """Register for faults. A driver or a virtual machine that has none leaves `faults` empty."""
        events = c_void_p()
        try:
            self._call("nvmlEventSetCreate", byref(events))
        except NvmlError:
            return
        self._events = events
        for handle in handles:
            try:
                self._call("nvmlDeviceRegisterEvents", self._handles[handle], c_ulonglong(_XID_EVENT), events)
            except NvmlError:
                continue  # the others may have them

    def _field(self, handle: Handle, number: int) -> int:
        field = _Field(id=number)
        self._call("nvmlDeviceGetFieldValues", self._handles[handle], ctypes.c_int(1), byref(field))
        if field.result:
            raise NvmlError("nvmlDeviceGetFieldValues", field.result)
        return int(field.value.unsigned)

    def _keep(self, pointer: c_void_p) -> Handle:
        handle = pointer.value or 0
        self._handles[handle] = pointer
        return handle

    def _text(self, function: str, *arguments: object) -> str:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._call(function, *arguments, text, c_uint(_TEXT_BYTES))
        return text.value.decode("ascii", "replace")

    def _call(self, function: str, *arguments: object) -> None:
        """Call a function by name. Raises NvmlError, FUNCTION_NOT_FOUND where this driver is older than it."""
        try:
            found = getattr(self._dll, function)
        except AttributeError as error:
            raise NvmlError(function, FUNCTION_NOT_FOUND) from error
        code = found(*arguments)
        if code:
            raise NvmlError(function, code)


def _missing(reason: str) -> Unavailable:
    return Unavailable(
        f"NVIDIA's driver does not answer: {reason}; install it, or in a container start with the GPUs passed through",
        code="gpu_driver_missing",
    )
