"""Watches the other processes of an installation, and reports which of them do not answer."""

import asyncio
import logging
from collections.abc import Mapping

from backends.processes.process_watch import HttpProbe, WatchedProcess
from contracts.errors import ConfigurationError

_log = logging.getLogger(__name__)


class ProcessWatch:
    """Watches the processes that TOLLKEEPER_WATCHED_PROCESSES names. None of them is needed to serve a request."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        """Accept the URLs to check, by the processes' names."""
        self._processes = [WatchedProcess(name, HttpProbe(url), _tell) for name, url in addresses.items()]

    async def run(self) -> None:
        """Check all processes periodically, until cancelled."""
        await asyncio.gather(*[process.run() for process in self._processes])

    @property
    def states(self) -> dict[str, str]:
        """Return the state of each: unknown, up, hung or away."""
        return {process.name: process.state for process in self._processes}

    def page(self) -> dict[str, dict[str, str]]:
        """Return the state that GET /ready shows."""
        return {process.name: {"state": process.state, "detail": process.detail} for process in self._processes}

    @property
    def is_degraded(self) -> bool:
        """Return whether one of them is hung or away."""
        return any([process.is_down for process in self._processes])


def read_addresses(text: str) -> dict[str, str]:
    """Parse `name=URL` pairs with commas between them. Raise ConfigurationError."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, url = part.partition("=")
        if not name.isidentifier() or not url:
            raise ConfigurationError(
                f"TOLLKEEPER_WATCHED_PROCESSES has {part[:100]!r}; it must be name=URL, "
                "such as control=http://127.0.0.1:8081/health"
            )
        HttpProbe(url)  # raises if it is none
        found[name] = url
    return found


def _tell(process: WatchedProcess) -> None:
    if process.is_down:
        _log.warning(f"process {process.state}", extra={"watched": process.name, "reason": process.detail})
    else:
        _log.info("process answers again", extra={"watched": process.name})
