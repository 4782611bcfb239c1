"""Probes that tell the supervisor whether a child process is hung: over HTTP, the engine protocol, or the kernel."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.network.tls import own_server_tls
from backends.processes.process_watch import Answer, Ask, HttpProbe

_OBSERVER: Final = "supervisor"  # the name of this client in an engine host's log
_LONGEST_WAIT_SECONDS: Final = 30.0  # a maximum, because an endless loop on a busy machine waits for a processor too
_RAN_SHARE: Final = 0.1
_WAITED_SHARE: Final = 0.5


@asynccontextmanager
async def open_probe(url: str, certificate: str = "") -> AsyncIterator[Ask]:
    """Yield a function that asks the process at a URL whether it responds; without a URL, it always says yes."""
    if url.startswith("unix://"):
        async with _host_probe(url) as probe:
            yield probe
    elif url:
        yield HttpProbe(url, own_server_tls(Path(certificate)) if certificate else None)
    else:
        yield _presumed_up


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped (SIGSTOP); False on systems other than Linux."""
    return _state_of(pid) == "T"


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


@dataclass(frozen=True, slots=True)
class _Turns:
    """Scheduler statistics of a process's main thread: nanoseconds that it ran, and that it waited for a processor."""

    at: float
    ran_ns: int
    waited_ns: int


class ProcessorWait:
    """Distinguishes a process that waits for a processor from a hung one. Only on Linux."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answered: _Turns | None = None

    def answered(self, pid: int | None) -> None:
        """Measure processor waiting from now. Call it when the process has answered or was restarted."""
        self._answered = None if pid is None else self._turns(pid)

    def explains(self, pid: int) -> bool:
        """Return whether the process has mostly waited for a processor since its last answer, at most 30 s ago."""
        before, now = self._answered, self._turns(pid)
        if before is None or now is None:
            return False
        silent_seconds = now.at - before.at
        if not 0 < silent_seconds < _LONGEST_WAIT_SECONDS:
            return False
        silent_ns = silent_seconds * 1e9
        if now.waited_ns - before.waited_ns >= _WAITED_SHARE * silent_ns:
            return True
        # The kernel counts a wait when it ends.
        return _state_of(pid) == "R" and now.ran_ns - before.ran_ns < _RAN_SHARE * silent_ns

    def _turns(self, pid: int) -> _Turns | None:
        try:
            ran_ns, waited_ns, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
            return _Turns(self._clock(), int(ran_ns), int(waited_ns))
        except (OSError, ValueError):
            return None


async def _presumed_up() -> Answer:
    return "up", ""


@asynccontextmanager
async def _host_probe(url: str) -> AsyncIterator[Ask]:
    # Imported here: the engine protocol is needed only to watch an engine host.
    from backends.llm.host.engine_address import EngineAddress
    from backends.llm.host.host_connection import HostConnection, Taking

    host = HostConnection(EngineAddress.parse(url), Taking(_OBSERVER, hung_seconds=0.0), lambda hello: None)

    async def ask() -> Answer:
        status = host.status()
        return ("hung", status.detail) if status.state == "hung" else ("away" if status.state == "away" else "up", "")

    try:
        yield ask
    finally:
        await host.close()
