"""GPU performance monitoring: what the chip counted between two samples, from Hopper on (`nvml.h`, nvmlGpm)."""

from collections.abc import Callable
from ctypes import Structure, byref, c_char_p, c_double, c_uint, c_void_p
from typing import Final

from backends.gpu.nvml import NOT_READY, NOT_SUPPORTED, Activity, Handle, NvmlError

_SM: Final = 2
_OCCUPANCY: Final = 3
_TENSOR: Final = 5
_DRAM_BANDWIDTH: Final = 10
_METRICS: Final = (_SM, _OCCUPANCY, _TENSOR, _DRAM_BANDWIDTH)
_ROOM: Final = 512  # entries the structure has in the newest header; a driver reads as many as it is asked for

Call = Callable[..., None]


class _Support(Structure):
    _fields_ = [("version", c_uint), ("is_supported", c_uint)]


class _Info(Structure):
    _fields_ = [("short_name", c_char_p), ("long_name", c_char_p), ("unit", c_char_p)]


class _Metric(Structure):
    _fields_ = [("id", c_uint), ("result", c_uint), ("value", c_double), ("info", _Info)]


class _Question(Structure):
    _fields_ = [
        ("version", c_uint),
        ("count", c_uint),
        ("before", c_void_p),
        ("now", c_void_p),
        ("metrics", _Metric * _ROOM),
    ]


class Gpm:
    """Keeps two samples for each device, taken in turn. `call` calls the library and raises NvmlError."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._samples: dict[Handle, tuple[c_void_p, c_void_p]] = {}  # the last one, and the one to be taken next
        self._question = _Question(version=1, count=len(_METRICS))

    def activity(self, key: Handle, device: c_void_p, instance: int | None = None) -> Activity:
        """Give the activity since the last call, of a GPU or of one of its instances (MIG).

        Raises NvmlError: NOT_SUPPORTED before Hopper, NOT_READY at the first call.
        """
        if key not in self._samples:
            self._begin(key, device, instance)
            raise NvmlError("nvmlGpmMetricsGet", NOT_READY)
        before, now = self._samples[key]
        self._take(device, instance, now)
        self._samples[key] = now, before
        question = self._question
        question.before, question.now = before, now
        for place, metric in enumerate(_METRICS):
            question.metrics[place].id = metric
        self._call("nvmlGpmMetricsGet", byref(question))
        found = question.metrics[: len(_METRICS)]
        return Activity(*(None if one.result or not 0 <= one.value <= 100 else one.value for one in found))

    def close(self) -> None:
        """Give the samples back."""
        for pair in self._samples.values():
            for sample in pair:
                self._call("nvmlGpmSampleFree", sample)
        self._samples = {}

    def _begin(self, key: Handle, device: c_void_p, instance: int | None) -> None:
        support = _Support(version=1)
        self._call("nvmlGpmQueryDeviceSupport", device, byref(support))
        if not support.is_supported:
            raise NvmlError("nvmlGpmQueryDeviceSupport", NOT_SUPPORTED)
        first, second = c_void_p(), c_void_p()
        self._call("nvmlGpmSampleAlloc", byref(first))
        self._call("nvmlGpmSampleAlloc", byref(second))
        self._samples[key] = first, second
        self._take(device, instance, first)

    def _take(self, device: c_void_p, instance: int | None, sample: c_void_p) -> None:
        if instance is None:
            self._call("nvmlGpmSampleGet", device, sample)
        else:
            self._call("nvmlGpmMigSampleGet", device, c_uint(instance), sample)
