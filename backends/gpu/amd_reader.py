"""AMD GPUs through `amdsmi`, the Python module of ROCm. Not yet run on AMD hardware.

`dram_activity` and `sm_activity` stay `None`: amdsmi's `umc_activity` is the time in which the memory controller was
busy, not the used bandwidth, and its `gfx_activity` counts any kernel.
"""

import importlib
import logging
import time
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any, Final

from backends.gpu.base import DeviceIdentity, DeviceProcess, DeviceSample, Round
from backends.gpu.own_processes import OwnProcesses
from contracts.errors import Unavailable

_log = logging.getLogger(__name__)

_MEGABYTE: Final = 1 << 20
_MICROJOULES: Final = 1e6
_NOT_AVAILABLE: Final = "N/A"


class AmdReader:
    """`GpuReader` for AMD. `smi` is the module; its exceptions have a base class of its own, so all exceptions are
    caught.
    """

    def __init__(self, smi: Any, own: OwnProcesses | None = None, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._smi = smi
        self._own = own or OwnProcesses()
        self._now_ns = now_ns
        self._devices: list[tuple[Any, DeviceIdentity]] = []
        for index, handle in enumerate(smi.amdsmi_get_processor_handles()):
            asic = self._ask(smi.amdsmi_get_gpu_asic_info, handle) or {}
            driver = self._ask(smi.amdsmi_get_gpu_driver_info, handle) or {}
            uuid = str(smi.amdsmi_get_gpu_device_uuid(handle))
            name, version = str(asic.get("market_name", "AMD GPU")), str(driver.get("driver_version", ""))
            self._devices.append((handle, DeviceIdentity(uuid, index, name, "amd", version)))

    @classmethod
    def open(cls) -> "AmdReader":
        """Load amdsmi. Raises Unavailable, code `gpu_driver_missing`, if the module or the driver is missing."""
        try:
            smi: ModuleType = importlib.import_module("amdsmi")
        except ImportError as error:
            raise Unavailable("AMD's module amdsmi is not installed", code="gpu_driver_missing") from error
        try:
            smi.amdsmi_init()
            return cls(smi)
        except Exception as error:  # the module's own class, which cannot be named before the import
            raise Unavailable(f"AMD's driver does not answer: {error}", code="gpu_driver_missing") from error

    def devices(self) -> tuple[DeviceIdentity, ...]:
        """Return the GPUs."""
        return tuple(identity for _, identity in self._devices)

    def keep(self, uuids: Collection[str]) -> None:
        """Measure only these GPUs from now on."""
        self._devices = [(handle, one) for handle, one in self._devices if one.uuid in uuids]

    def look(self) -> Round:
        """Measure all GPUs. amdsmi reports no faults."""
        return Round(tuple(self._sample(handle, identity) for handle, identity in self._devices))

    def close(self) -> None:
        """Shut the library down."""
        self._smi.amdsmi_shut_down()

    def _sample(self, handle: Any, identity: DeviceIdentity) -> DeviceSample:
        smi = self._smi
        memory = self._ask(smi.amdsmi_get_gpu_vram_usage, handle) or {}
        power = self._ask(smi.amdsmi_get_power_info, handle) or {}
        activity = self._ask(smi.amdsmi_get_gpu_activity, handle) or {}
        errors = self._ask(smi.amdsmi_get_gpu_total_ecc_count, handle) or {}
        total, used = _number(memory, "vram_total"), _number(memory, "vram_used")
        graphics = _number(activity, "gfx_activity")
        watts = _number(power, "current_socket_power")
        return DeviceSample(
            uuid=identity.uuid,
            at_ns=self._now_ns(),
            memory_total_bytes=None if total is None else int(total) * _MEGABYTE,
            memory_used_bytes=None if used is None else int(used) * _MEGABYTE,
            memory_free_bytes=None if total is None or used is None else int(total - used) * _MEGABYTE,
            power_watts=_number(power, "average_socket_power") if watts is None else watts,
            energy_joules=self._energy(handle),
            temperature_celsius=self._temperature(handle),
            sm_clock_mhz=self._clock(handle, "GFX"),
            memory_clock_mhz=self._clock(handle, "MEM"),
            ecc_corrected=_whole(errors, "correctable_count"),
            ecc_uncorrected=_whole(errors, "uncorrectable_count"),
            kernel_activity=None if graphics is None else graphics / 100,
            processes=self._processes(handle),
        )

    def _energy(self, handle: Any) -> float | None:
        found = self._ask(self._smi.amdsmi_get_energy_count, handle) or {}
        count = _number(found, "energy_accumulator")
        resolution = _number(found, "counter_resolution")  # microjoules a count
        return None if count is None or resolution is None else count * resolution / _MICROJOULES

    def _temperature(self, handle: Any) -> float | None:
        smi = self._smi
        found = self._ask(
            lambda one: smi.amdsmi_get_temp_metric(
                one, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
            ),
            handle,
        )
        return None if found is None or found == _NOT_AVAILABLE else float(found)

    def _clock(self, handle: Any, kind: str) -> int | None:
        smi = self._smi
        found = self._ask(lambda one: smi.amdsmi_get_clock_info(one, getattr(smi.AmdSmiClkType, kind)), handle) or {}
        return _whole(found, "clk")

    def _processes(self, handle: Any) -> tuple[DeviceProcess, ...] | None:
        found = self._ask(self._smi.amdsmi_get_gpu_process_list, handle)
        if found is None:
            return None
        return tuple(
            DeviceProcess(int(one["pid"]), _whole(one, "mem"), self._own.is_ours(int(one["pid"]))) for one in found
        )

    def _ask(self, question: Callable[[Any], Any], handle: Any) -> Any:
        try:
            return question(handle)
        except Exception as error:  # of the module's own class
            _log.debug("not measured device=%s: %s", handle, error)
            return None


def _number(found: dict[str, Any], name: str) -> float | None:
    value = found.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(found: dict[str, Any], name: str) -> int | None:
    value = _number(found, name)
    return None if value is None else int(value)
