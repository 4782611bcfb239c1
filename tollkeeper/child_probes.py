"""How the supervisor finds out whether a process of its own is hung: by HTTP, by the engine wire, by the kernel."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from backends.network.tls import own_server_tls
from backends.processes.process_watch import Answer, Ask, HttpProbe

_OBSERVER: Final = "supervisor"  # what it is called in an engine host's log


@asynccontextmanager
async def open_probe(url: str, certificate: str = "") -> AsyncIterator[Ask]:
    """Yield what asks a process at a URL; without a URL, what presumes that it is well."""
    if url.startswith("unix://"):
        async with _host_probe(url) as probe:
            yield probe
    elif url:
        yield HttpProbe(url, own_server_tls(Path(certificate)) if certificate else None)
    else:
        yield _presumed_up


def is_stopped(pid: int) -> bool:
    """Return whether the kernel has stopped a process (SIGSTOP). Only Linux tells."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (OSError, IndexError):
        return False


async def _presumed_up() -> Answer:
    return "up", ""


@asynccontextmanager
async def _host_probe(url: str) -> AsyncIterator[Ask]:
    # Here: the engine wire is loaded only where a host is watched.
    from backends.llm.host.engine_address import EngineAddress
    from backends.llm.host.engine_host import EngineHost, Taking

    host = EngineHost(EngineAddress.parse(url), Taking(_OBSERVER, hung_seconds=0.0), lambda hello: None)

    async def ask() -> Answer:
        status = host.status()
        return ("hung", status.detail) if status.state == "hung" else ("away" if status.state == "away" else "up", "")

    try:
        yield ask
    finally:
        await host.close()
