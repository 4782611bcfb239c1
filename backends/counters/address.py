"""Where the shared counters are: a Redis URL, checked before it is used and shown without its credentials."""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, urlsplit

from contracts.errors import ConfigurationError

_FORMS: Final = "redis://HOST:PORT/DATABASE, rediss://... for TLS, or unix:///PATH?db=DATABASE"


@dataclass(frozen=True, slots=True)
class CountersAddress:
    """A Redis server's URL. Raises ConfigurationError if it is unusable, naming what is wrong."""

    url: str = field(repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError as error:
            raise ConfigurationError(
                f"the Redis URL has a port that is no number within 1 to 65535; give {_FORMS}"
            ) from error
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise ConfigurationError(f"the Redis URL begins with {parts.scheme!r}; give {_FORMS}")
        if port == 0:
            raise ConfigurationError(f"the Redis URL {self.shown} has port 0; give {_FORMS}")
        if parts.scheme == "unix":
            database = parse_qs(parts.query).get("db", ["0"])[0]
            if parts.netloc or not parts.path.strip("/"):
                raise ConfigurationError(f"the Redis URL {self.shown} names no socket; give {_FORMS}")
        else:
            database = parts.path.strip("/") or "0"
            if not parts.hostname:
                raise ConfigurationError(f"the Redis URL {self.shown} names no host; give {_FORMS}")
            if parts.query:
                raise ConfigurationError(
                    f"the Redis URL {self.shown} has parameters, which are not read; leave them out"
                )
        if not database.isdecimal():
            raise ConfigurationError(
                f"the Redis URL names the database {database!r}, which is no number; give {_FORMS}"
            )

    @property
    def shown(self) -> str:
        """The URL as it may be shown: without user, password and parameters."""
        parts = urlsplit(self.url)
        host = parts.netloc.rsplit("@", 1)[-1]
        return f"{parts.scheme}://{host}{parts.path}"
