"""Adds up the time that requests have waited for replicas with a cached prefix, to decide when to compute
it elsewhere.
"""

from typing import Final

_MAX_PREFIXES: Final = 8_192


class WaitBook:
    """Total waiting time by prefix (the key of its last block), bounded: prefixes without recent waits are removed."""

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: dict[int, float] = {}
        self._older: dict[int, float] = {}

    def add(self, key: int, waited_ns: float, copying_ns: float) -> bool:
        """Add a wait; return whether the total now justifies computing the prefix elsewhere, which resets the total."""
        waited = self._newer.pop(key, None)
        if waited is None:
            waited = self._older.pop(key, 0.0)
        waited += waited_ns
        if waited >= copying_ns:
            return True
        if len(self._newer) >= _MAX_PREFIXES // 2:
            self._older, self._newer = self._newer, {}
        self._newer[key] = waited
        return False
