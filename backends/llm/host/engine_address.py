"""The address of an engine host: `unix:///path/to.sock`, or `tcp://host:port`, with TLS beyond loopback."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import PurePath
from typing import Self, TypeVar
from urllib.parse import urlsplit

from backends.network.keepalive import keep_alive
from backends.network.tls import tls_failure
from contracts.errors import ConfigurationError

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """A parsed URL: the path of a socket, or host and port."""

    url: str
    path: str = ""
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse an engine host's URL. Raises ConfigurationError if it is invalid."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/") and len(parts.path) > 1:
            return cls(url, path=parts.path)
        if parts.scheme == "tcp" and parts.hostname and port and parts.path in ("", "/"):
            return cls(url, host=parts.hostname, port=port)
        raise ConfigurationError(
            f"{url[:200]!r} is not an engine host's URL; it must look like unix:///path/engine-default.sock"
        )

    @property
    def name(self) -> str:
        """Return a short name for people: the socket's name without `engine-`, or host and port."""
        return PurePath(self.path).stem.removeprefix("engine-") if self.path else f"{self.host}:{self.port}"

    def require_safe(self, tls: ssl.SSLContext | None) -> None:
        """Raise ConfigurationError if the host is on another machine and there are no certificates."""
        if tls is None and not self.is_loopback:
            raise ConfigurationError(
                f"the host at {self.url[:200]} is on another machine, which takes certificates of both sides: set "
                "TOLLKEEPER_ENGINE_CLIENT_CERTIFICATE, TOLLKEEPER_ENGINE_CLIENT_KEY and TOLLKEEPER_ENGINE_CLIENT_CA"
            )

    @property
    def is_loopback(self) -> bool:
        """Return whether the address is on this machine."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False  # a name, which may resolve to any address

    async def connect(self, make: Callable[[], ProtocolT], tls: ssl.SSLContext | None = None) -> ProtocolT:
        """Connect and return the protocol; TCP uses TLS if a context is given. Raises OSError."""
        loop = asyncio.get_running_loop()
        if self.path:
            return (await loop.create_unix_connection(make, self.path))[1]
        name = self.host if tls is not None else None
        try:
            transport, made = await loop.create_connection(make, self.host, self.port, ssl=tls, server_hostname=name)
        except ssl.SSLError as error:
            raise ConnectionError(
                f"TLS with it failed: {tls_failure(error)}; its certificate must be for {self.host} and signed by what "
                "TOLLKEEPER_ENGINE_CLIENT_CA holds"
            ) from error
        keep_alive(transport.get_extra_info("socket"))
        return made

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"
