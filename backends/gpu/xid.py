"""Meanings of NVIDIA's XID errors, with the scope by the immediate action in NVIDIA's catalog."""

from collections.abc import Mapping
from typing import Final

from backends.gpu.base import FaultScope

# A "program" fault ends the program that caused it; after a "device" fault the GPU must be reset.
_KNOWN: Final[Mapping[int, tuple[FaultScope, str]]] = {
    13: ("program", "a kernel made an illegal access or instruction"),
    31: ("program", "a kernel touched memory that is not mapped"),
    32: ("program", "the command buffer of a program was corrupt"),
    43: ("program", "the driver stopped a program's channel"),
    45: ("program", "the driver cleaned up after a program"),
    48: ("device", "an uncorrectable memory error"),
    61: ("device", "a microcontroller of the GPU reported a breakpoint"),
    62: ("device", "a microcontroller of the GPU halted"),
    63: ("notice", "a memory row was remapped after an error"),
    64: ("device", "a memory row could not be remapped"),
    69: ("program", "a program's graphics engine class error"),
    74: ("device", "an NVLink error"),
    79: ("device", "it has fallen off the bus"),
    92: ("notice", "a high rate of corrected memory errors"),
    94: ("program", "an uncorrectable memory error, contained to the program it hit"),
    95: ("device", "an uncorrectable memory error that could not be contained"),
    109: ("program", "a program's context switch timed out"),
    119: ("device", "its system processor (GSP) does not answer"),
    120: ("device", "its system processor (GSP) failed"),
    140: ("device", "an unrecovered memory error"),
    154: ("notice", "the driver recommends a recovery action"),
}


def meaning_of(xid: int) -> tuple[FaultScope, str]:
    """Return an XID's scope and meaning. Unlisted ones are notices, so nothing is stopped because of them."""
    return _KNOWN.get(xid, ("notice", "a fault that is not known here"))
