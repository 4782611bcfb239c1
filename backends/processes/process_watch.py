"""Detects processes that are hung: they accept connections but do not respond.

Silence is counted in ticks of this process's event loop instead of by the clock, so that a delay of this process itself
does not count.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Literal
from urllib.parse import urlsplit

from backends.processes.beat import until_beat
from contracts.errors import ConfigurationError

State = Literal["unknown", "up", "hung", "away"]
Answer = tuple[State, str]  # the state, and the reason if it is not "up"
Ask = Callable[[], Awaitable[Answer]]

_EVERY_SECONDS: Final = 2.0  # together with the silent ticks, a hung process is detected within 5 s
_TICK_SECONDS: Final = 0.5
_SILENT_TICKS: Final = 6
_START_SECONDS: Final = 60.0  # for which a process that has never responded counts as starting
_LONGEST_ROUND_SECONDS: Final = 5.0  # a check that took longer was delayed by this process
_HEAD_BYTES: Final = 12  # "HTTP/1.1 200"


class HttpProbe:
    """Sends an HTTP request on a new connection each time. Any response counts as alive."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        """`url` is the URL to request. Raises ConfigurationError if it is invalid."""
        try:
            parts = urlsplit(url)
            port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        except (ValueError, KeyError) as error:
            raise ConfigurationError(f"{url[:200]!r} is not an http or https URL") from error
        if not parts.hostname:
            raise ConfigurationError(f"{url[:200]!r} names no host")
        self._host, self._port = parts.hostname, port
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._request = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode("latin-1")

    async def __call__(self) -> Answer:
        """Return the server's state: up, hung or away, with the reason."""
        asking = asyncio.ensure_future(self._ask())
        try:
            for _ in range(_SILENT_TICKS):
                done, _ = await asyncio.wait((asking,), timeout=_TICK_SECONDS)
                if done:
                    return asking.result()
        finally:
            asking.cancel()
        return "hung", f"it did not answer for {_TICK_SECONDS * _SILENT_TICKS:g} s"

    async def _ask(self) -> Answer:
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
            writer.write(self._request)
            await reader.readexactly(_HEAD_BYTES)
        except asyncio.IncompleteReadError:
            return "away", "it closed the connection without an answer"
        except OSError as error:
            return "away", error.strerror or type(error).__name__
        finally:
            if writer is not None:
                writer.transport.abort()
        return "up", ""


class WatchedProcess:
    """One process that is checked every 2 s. `state` is unknown until it first responds or hangs."""

    def __init__(self, name: str, ask: Ask, on_change: "Callable[[WatchedProcess], None]") -> None:
        """`on_change` is called when the state has changed, except at the first response."""
        self.name = name
        self.state: State = "unknown"
        self.detail = ""
        self.hung_seconds = 0.0  # how long it has been hung
        self._ask = ask
        self._on_change = on_change
        self._seconds = 0.0  # since the start of the watch
        self._looked_at: float | None = None

    @property
    def is_down(self) -> bool:
        """Return whether it is hung or away."""
        return self.state in ("hung", "away")

    def restarted(self) -> None:
        """Reset the state, because a new process replaces the old one."""
        self.state, self.detail, self.hung_seconds, self._seconds = "unknown", "", 0.0, 0.0

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(until_beat(_EVERY_SECONDS))

    async def look(self) -> None:
        """Check once."""
        began = asyncio.get_running_loop().time()
        state, detail = await self._ask()
        now = asyncio.get_running_loop().time()
        passed = min(now - (self._looked_at or began), _LONGEST_ROUND_SECONDS)
        self._looked_at = now
        self._seconds += passed
        if state == "unknown" or (state != "up" and self.state == "unknown" and self._seconds < _START_SECONDS):
            return
        before, self.state, self.detail = self.state, state, detail
        if state != "hung":
            self.hung_seconds = 0.0
        elif before == "hung":
            self.hung_seconds += passed
        else:  # it may have been up until it was asked
            self.hung_seconds = min(now - began, _LONGEST_ROUND_SECONDS)
        if before != state and (before, state) != ("unknown", "up"):
            self._on_change(self)
