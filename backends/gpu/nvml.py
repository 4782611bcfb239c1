"""NVIDIA's management library as the reader needs it: the seam that recorded answers fill in tests.

Nothing is installed for it: the library comes with the driver, and is called through ctypes (`nvml_library.py`).
"""

from dataclasses import dataclass
from typing import Final, Literal, Protocol

Handle = int  # opaque: the library's pointer, or a recorded device's place

Quantity = Literal[
    "power_milliwatts",
    "power_limit_milliwatts",
    "energy_millijoules",
    "temperature_celsius",
    "memory_temperature_celsius",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "throttle_reasons",
    "ecc_corrected",
    "ecc_uncorrected",
    "kernel_percent",
]

# nvml.h, nvmlReturn_t
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
INSUFFICIENT_SIZE: Final = 7
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
NO_DATA: Final = 21
VERSION_MISMATCH: Final = 25
NOT_READY: Final = 27

PERMANENT: Final = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, VERSION_MISMATCH})
LOST: Final = frozenset({GPU_IS_LOST, RESET_REQUIRED})


class NvmlError(Exception):
    """A call of the library failed. `code` is its nvmlReturn_t."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} answered {code}")
        self.function = function
        self.code = code


@dataclass(frozen=True, slots=True)
class Activity:
    """What GPM (GPU performance monitoring, from Hopper on) says of the time since the last question, in percent."""

    sm_percent: float | None
    occupancy_percent: float | None
    tensor_percent: float | None
    dram_percent: float | None


class Nvml(Protocol):
    """The calls. Each raises NvmlError."""

    def driver(self) -> str:
        """Give the driver's version."""

    def devices(self) -> list[Handle]:
        """Give the whole GPUs, in the driver's order."""

    def slices(self, handle: Handle) -> list[Handle]:
        """Give a GPU's MIG devices; none where MIG is off."""

    def uuid(self, handle: Handle) -> str:
        """Give the name that stays: "GPU-..." or "MIG-..."."""

    def name(self, handle: Handle) -> str:
        """Give the product's name."""

    def memory(self, handle: Handle) -> tuple[int, int, int]:
        """Give (total, used, free) bytes; what the driver keeps for itself is in neither of the last two."""

    def number(self, handle: Handle, quantity: Quantity) -> int:
        """Give one reading, in the unit its name says."""

    def processes(self, handle: Handle) -> list[tuple[int, int | None]]:
        """Give (pid, bytes) of those with a compute context; bytes `None` where the driver does not tell."""

    def process_activity(self, handle: Handle, since_us: int) -> list[tuple[int, int, int]]:
        """Give (pid, Unix microseconds, percent of multiprocessor time) since a moment. NOT_FOUND: nobody."""

    def activity(self, handle: Handle) -> Activity:
        """Give GPM's answer for the time since the last call. NOT_READY at the first."""

    def faults(self) -> list[tuple[Handle, int]]:
        """Give (device, XID) of the faults since the last call, without waiting."""

    def close(self) -> None:
        """Shut the library down."""
