"""Settings of a provider host, from TOLLKEEPER_PROVIDERS_* variables."""

import socket
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from backends.channels.inward import NetworksText, read_networks
from backends.processes.logs import LogSettings
from backends.providers.egress import Egress


class ProviderHostSettings(LogSettings):
    """Settings of the provider host. Sizes are in bytes, times in seconds."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", extra="ignore", frozen=True)

    data: Path = Path(".tollkeeper")
    providers_socket: Path | None = None
    # References that targets may use, comma-separated: env:ANTHROPIC_API_KEY, env:*_API_KEY, file:/run/secrets/*.
    # Others are refused.
    providers_keys: str = ""
    providers_environment: str = ""  # variables that LiteLLM may read by itself, comma-separated

    # Hosts that may be connected to besides those of targets, comma-separated; * is a wildcard.
    providers_hosts: str = ""
    providers_inward: NetworksText = ""  # internal networks that host names may resolve to

    providers_max_requests: int = Field(default=1024, ge=1)  # of all gateways together; further ones are refused
    providers_send_buffer_bytes: int = Field(default=1 << 20, ge=1 << 16)  # above this, providers' answers are not read
    providers_drain_seconds: float = Field(default=10.0, ge=0)

    @property
    def socket(self) -> Path:
        """Return the path of the socket that gateways connect to."""
        return (self.providers_socket or self.data / "run" / "providers.sock").absolute()

    @property
    def key_patterns(self) -> tuple[str, ...]:
        """Return the patterns of key references that the host may read."""
        return listed(self.providers_keys)

    @property
    def kept_variables(self) -> tuple[str, ...]:
        """Return the variables that LiteLLM may read by itself."""
        return listed(self.providers_environment)

    def egress(self, environment: Mapping[str, str]) -> Egress:
        """Return the restrictions of outgoing connections."""
        return Egress(listed(self.providers_hosts), read_networks(self.providers_inward), environment)

    @property
    def host_name(self) -> str:
        """Return the name of this host among others."""
        return f"providers@{socket.gethostname()}"


def listed(text: str) -> tuple[str, ...]:
    """Return the entries of a comma-separated setting."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))
