"""The address and user of a store, which is the embedded one or a ClickHouse server."""

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from backends.secrets.installation_id import installation_id
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError

StoreRole = Literal["writer", "reader", "supervisor"]


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store's URL, database and credentials. Raises ConfigurationError if the URL is invalid."""

    url: str
    database: str
    user: str
    password: str = field(repr=False)
    installation: str = ""  # id of the installation that the store must belong to; empty: any

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # the port is not a number within 0 to 65535
            usable = False
        if not usable:
            raise ConfigurationError(
                f"store URL {self.shown_url!r} is unusable; give http://HOST:PORT or https://HOST:PORT "
                "in TOLLKEEPER_STORE_URL"
            )
        if parts.username or parts.password:
            raise ConfigurationError(
                "the store URL must not hold credentials; use TOLLKEEPER_STORE_USER and TOLLKEEPER_STORE_PASSWORD"
            )

    @property
    def shown_url(self) -> str:
        """Return the URL without credentials."""
        return self.url.rsplit("@", 1)[-1]

    @property
    def is_loopback(self) -> bool:
        """Return whether the store is on this machine, where compression costs more than it saves."""
        return urlsplit(self.url).hostname in ("127.0.0.1", "::1", "localhost")

    @classmethod
    def resolve(
        cls,
        url: str,
        database: str,
        role: StoreRole,
        secrets: SecretFiles,
        *,
        user: str | None = None,
        password: str | None = None,
    ) -> "StoreAddress":
        """Return the address with credentials: explicit ones, or else the role's user and the secret file
        `store_<role>`.

        The file is created if missing, so that a process may start before the store; both then read it.
        """
        name = user or role
        if not password:  # an empty variable is an unset one
            password = secrets.get_or_create(f"store_{role}") if name == role else ""
        return cls(url, database, name, password, installation_id(secrets))
