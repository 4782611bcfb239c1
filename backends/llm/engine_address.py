"""Where an engine host listens: `unix:///path/to.sock`, or `tcp://host:port`."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Self, TypeVar
from urllib.parse import urlsplit

from contracts.errors import ConfigurationError

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """A parsed URL: a socket's path, or a host and a port."""

    url: str
    path: str = ""
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL. Raises ConfigurationError."""
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
            f"{url[:200]!r} is no engine host's URL; it must look like unix:///path/engine-default.sock"
        )

    @property
    def name(self) -> str:
        """Give a short name for people: the socket's without `engine-`, or host and port."""
        return PurePath(self.path).stem.removeprefix("engine-") if self.path else f"{self.host}:{self.port}"

    async def connect(self, make: Callable[[], ProtocolT]) -> ProtocolT:
        """Connect. Raises OSError."""
        loop = asyncio.get_running_loop()
        if self.path:
            return (await loop.create_unix_connection(make, self.path))[1]
        return (await loop.create_connection(make, self.host, self.port))[1]

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"
