"""The data plane's view of the provider host: its address, the targets that need it, and its state."""

from collections.abc import Callable

from backends.llm.base import Target
from backends.llm.host.engine_hosts import EngineHosts
from backends.llm.host.host_connection import HostStatus, Taking
from contracts.serving.configuration import TargetSpec


class ProviderHosts:
    """Builds targets of kind litellm, all at one provider host. The connection is open as long as one of them
    exists.
    """

    def __init__(self, url: str, gateway: str, hung_seconds: float) -> None:
        """Accept the host's URL and this gateway's name. The connection is closed if the host does not answer for
        `hung_seconds`.
        """
        self._url = url
        self._hung_seconds = hung_seconds
        self._gateway = gateway
        self._hosts: EngineHosts | None = None

    def target(self, spec: TargetSpec, resolve_key: Callable[[str], str]) -> Target:
        """Build a target. Raises ConfigurationError on bad settings."""
        from backends.llm.provider_target import PROVIDER_WORDS, ProviderTarget  # here: most gateways have none

        if self._hosts is None:
            self._hosts = EngineHosts(Taking(self._gateway, hung_seconds=self._hung_seconds), PROVIDER_WORDS)
        return ProviderTarget(spec, resolve_key, self._hosts, self._url)

    def process_states(self) -> dict[str, str]:
        """Return the host's state by its name, like that of other processes; empty if no target needs the host."""
        host = self.health()
        return {} if host is None else {"providers": str(host["state"]) if host["state"] in ("hung", "away") else "up"}

    def health(self) -> dict[str, object] | None:
        """Return the state that GET /ready shows; `None` if no target needs the host, which then need not run."""
        statuses = [] if self._hosts is None else list(self._hosts.status().values())
        return _shown(statuses[0]) if statuses else None


def _shown(host: HostStatus) -> dict[str, object]:
    return {
        "state": host.state,
        "detail": host.detail,
        "latency_ms": None if host.latency_ns is None else round(host.latency_ns / 1e6, 3),
        "host": host.engine,
        "requests": host.requests,
    }
