"""NVIDIA's library as it answered once: each device's answers, an error's code in place of one it refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from backends.gpu.nvml import NOT_SUPPORTED, Activity, Handle, NvmlError, Quantity

GIB = 1 << 30


@dataclass
class Device:
    """One device's answers. An answer that is an `NvmlError` is raised."""

    uuid: str = "GPU-1"
    name: str = "NVIDIA H200"
    memory: Any = (140 * GIB, 1 * GIB, 139 * GIB)
    numbers: dict[str, Any] = field(default_factory=dict)
    processes: Any = field(default_factory=list)
    process_activity: Any = field(default_factory=list)
    activity: Any = field(default_factory=lambda: NvmlError("nvmlGpmQueryDeviceSupport", NOT_SUPPORTED))
    slices: "list[Device]" = field(default_factory=list)


class RecordedNvml:
    """Implements `Nvml`. `asked` counts the questions by name; `faults_waiting` are told once."""

    def __init__(self, *devices: Device, driver: str = "580.159.04") -> None:
        self._driver = driver
        self._devices: dict[Handle, Device] = {}
        self._whole = [self._add(device) for device in devices]
        self._slices = {
            handle: [self._add(one) for one in device.slices]
            for handle, device in zip(self._whole, devices, strict=True)
        }
        self.faults_waiting: list[tuple[Handle, int]] = []
        self.asked: dict[str, int] = {}
        self.is_closed = False

    def _add(self, device: Device) -> Handle:
        handle = len(self._devices) + 1
        self._devices[handle] = device
        return handle

    def _give(self, name: str, answer: Any) -> Any:
        self.asked[name] = self.asked.get(name, 0) + 1
        if isinstance(answer, NvmlError):
            raise answer
        return answer

    def driver(self) -> str:
        return self._driver

    def devices(self) -> list[Handle]:
        return self._whole

    def slices(self, handle: Handle) -> list[Handle]:
        return self._slices.get(handle, [])

    def uuid(self, handle: Handle) -> str:
        return self._devices[handle].uuid

    def name(self, handle: Handle) -> str:
        return self._devices[handle].name

    def memory(self, handle: Handle) -> tuple[int, int, int]:
        total, used, free = self._give("memory", self._devices[handle].memory)
        return total, used, free

    def number(self, handle: Handle, quantity: Quantity) -> int:
        unsupported = NvmlError(quantity, NOT_SUPPORTED)
        return int(self._give(quantity, self._devices[handle].numbers.get(quantity, unsupported)))

    def processes(self, handle: Handle) -> list[tuple[int, int | None]]:
        return list(self._give("processes", self._devices[handle].processes))

    def process_activity(self, handle: Handle, since_us: int) -> list[tuple[int, int, int]]:
        return [
            one for one in self._give("process_activity", self._devices[handle].process_activity) if one[1] > since_us
        ]

    def activity(self, handle: Handle) -> Activity:
        found = self._give("activity", self._devices[handle].activity)
        assert isinstance(found, Activity)
        return found

    def faults(self) -> list[tuple[Handle, int]]:
        found, self.faults_waiting = self.faults_waiting, []
        return found

    def close(self) -> None:
        self.is_closed = True


def answer(row: Mapping[str, Any]) -> Any:
    """Give a recorded answer: what was said, or the error it was."""
    said = row["answer"]
    return NvmlError(said["function"], said["error"]) if isinstance(said, dict) and "error" in said else said
