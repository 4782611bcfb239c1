"""Settings of HTTP listeners other than the data plane's: connections and host names."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from backends.network.connection_table import ConnectionLimits, ConnectionTable
from backends.network.head_limits import HEADER_BYTES, HEADER_COUNT, HeadLimits
from backends.network.host_names import HostNames
from backends.processes.logs import LogSettings
from backends.web.bounded_protocol import Bounds


class ListenerSettings(LogSettings):
    """Settings that all processes with a listener have. Times are in seconds."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", extra="ignore", frozen=True)

    host: str = "127.0.0.1"
    trusted_proxies: str = ""  # comma-separated networks whose forwarding headers are trusted
    allowed_hosts: str = ""  # comma-separated host names that requests to a loopback address may have
    max_connections: int = Field(default=10_000, ge=1)
    max_connections_per_address: int | None = Field(default=None, ge=1)  # IPv6: per /64; `None`: a quarter of the total
    max_header_bytes: int = Field(default=HEADER_BYTES, ge=1024)
    max_header_count: int = Field(default=HEADER_COUNT, ge=8)
    head_seconds: float = Field(default=10.0, gt=0)
    body_seconds: float = Field(default=60.0, gt=0)
    idle_seconds: float = Field(default=75.0, gt=0)
    metrics_token: str = Field(default="", repr=False)  # gives access to details; empty: the secret file's

    def bounds(self) -> Bounds:
        """Return the limits of one listener. Raises ConfigurationError if a network is invalid."""
        limits = ConnectionLimits.of(self.max_connections, self.max_connections_per_address, self.trusted_proxies)
        return Bounds(
            ConnectionTable(limits),
            HostNames.of(self.host, self.host_names),
            HeadLimits(self.max_header_bytes, self.max_header_count),
            self.head_seconds,
            self.body_seconds,
            self.idle_seconds,
        )

    @property
    def host_names(self) -> str:
        """Return the host names that requests may have, besides those of this machine."""
        return self.allowed_hosts
