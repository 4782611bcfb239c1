"""Waiting time of requests for the replicas that hold a prefix, since it was last copied to another."""

from typing import Final

_MAX_PREFIXES: Final = 8_192


class WaitBook:
    """Waiting by the key of a prefix's last block. Bounded: prefixes for which nobody waits any more are forgotten."""

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: dict[int, float] = {}
        self._older: dict[int, float] = {}

    def add(self, key: int, waited_ns: float, copying_ns: float) -> bool:
        """Count a wait; return whether it is now worth a copy, which begins a new account."""
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
