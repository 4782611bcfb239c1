"""The origin of an HTTP server, parsed from its base URL."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from contracts.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Origin:
    """Address of an HTTP server: scheme, host, port, and the path prefix of its API."""

    scheme: str
    host: str
    port: int
    prefix: str

    @classmethod
    def parse(cls, url: str) -> "Origin":
        """Parse a base URL. Raises ConfigurationError unless it is http(s)://host[:port][/path]."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigurationError(f"{url!r} is not a URL: {error}") from error
        if not url.isascii() or any(character <= " " for character in url):
            raise ConfigurationError(f"{url!r} is not a URL: it contains spaces or characters that must be escaped")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise ConfigurationError(f"{url!r} must look like http://host:port/path, without query or user")
        if parts.netloc.endswith(":") or port == 0:
            raise ConfigurationError(f"{url!r} has no port after its colon; give 1 to 65535, or leave out the colon")
        default_port = 443 if parts.scheme == "https" else 80
        return cls(parts.scheme, parts.hostname, port or default_port, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """Return the Host header's value."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
