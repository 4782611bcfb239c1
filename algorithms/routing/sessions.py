"""The replica that last served each recent session: a hint that may be lost."""

from typing import Final

_MAX_SESSIONS: Final = 65_536


class Sessions:
    """Two generations of at most 32,768 sessions each: the older one is dropped when the newer one is full."""

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: dict[str, str] = {}
        self._older: dict[str, str] = {}

    def note(self, session: str, replica: str) -> None:
        """Record the replica that serves a session."""
        if len(self._newer) >= _MAX_SESSIONS // 2:
            self._older, self._newer = self._newer, {}
        self._newer[session] = replica

    def last(self, session: str) -> str | None:
        """Return the replica that last served a session; `None` if unknown."""
        found = self._newer.get(session)
        return self._older.get(session) if found is None else found
