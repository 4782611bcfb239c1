"""Whether other processes answer: a process that accepts connections and says nothing is hung, like a stopped one.

Silence is counted in ticks of this process's event loop, not by the clock: when this process was itself stopped or
held up, the others are not to blame.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Literal
from urllib.parse import urlsplit

from backends.processes.beat import until_beat
from contracts.errors import ConfigurationError

State = Literal["unknown", "up", "hung", "away"]
Answer = tuple[State, str]  # and why it is not up
Ask = Callable[[], Awaitable[Answer]]

_EVERY_SECONDS: Final = 2.0  # with the ticks of silence a hung process is known within five seconds
_TICK_SECONDS: Final = 0.5
_SILENT_TICKS: Final = 6
_START_SECONDS: Final = 60.0  # of a process that has never answered: it may still be starting
_LONGEST_ROUND_SECONDS: Final = 5.0  # one that took longer was held up in this process
_HEAD_BYTES: Final = 12  # "HTTP/1.1 200"


class HttpProbe:
    """Asks an HTTP server over a connection of its own each time. Any reply at all shows that it is alive."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        """Accept the URL to ask. Raise ConfigurationError if it is none."""
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
        """Return how the server is: up, hung or away."""
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
    """One process that is asked every two seconds. `state` is unknown until it has first answered or been hung."""

    def __init__(self, name: str, ask: Ask, on_change: "Callable[[WatchedProcess], None]") -> None:
        """Call `on_change` when the state has changed, except for the first answer."""
        self.name = name
        self.state: State = "unknown"
        self.detail = ""
        self.hung_seconds = 0.0  # for how long it has been hung
        self._ask = ask
        self._on_change = on_change
        self._seconds = 0.0  # since it is watched
        self._looked_at: float | None = None

    @property
    def is_down(self) -> bool:
        """Return whether it is hung or away."""
        return self.state in ("hung", "away")

    def restarted(self) -> None:
        """Forget what is known: another process begins in its place."""
        self.state, self.detail, self.hung_seconds, self._seconds = "unknown", "", 0.0, 0.0

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(until_beat(_EVERY_SECONDS))

    async def look(self) -> None:
        """Ask once."""
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
