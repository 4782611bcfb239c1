"""The Redis URL of the shared counters: validated, and shown without its credentials."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from backends.network.tls import TlsFiles
from contracts.errors import ConfigurationError

Host = tuple[str, int]
Kind = Literal["server", "socket", "cluster", "sentinel"]

MAX_REPLICAS: Final = 5
_FORMS: Final = (
    "redis://HOST:PORT/DATABASE, redis://HOST:PORT,HOST:PORT for a Redis Cluster, "
    "redis+sentinel://HOST:PORT,HOST:PORT/NAME/DATABASE for Sentinel, rediss for TLS, or unix:///PATH?db=DATABASE"
)
_SCHEMES: Final = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "unix")
_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379


@dataclass(frozen=True)
class CountersAddress:
    """A Redis URL. Raises ConfigurationError if it is unusable, naming the fault.

    `replicas` is how many replicas must confirm a batch before it counts; `None` means one for a cluster or Sentinel,
    and none for a single server. `tls` names the files of a `rediss` URL; without an authority the system's are used.
    `sentinel_user` and `sentinel_password` are for the Sentinels, the URL's for the servers. `installation` is the
    owner of the counters there; empty: unknown, so the server is not checked.
    """

    url: str = field(repr=False)
    replicas: int | None = None
    tls: TlsFiles = TlsFiles()
    sentinel_user: str = ""
    sentinel_password: str = field(default="", repr=False)
    installation: str = ""

    def __post_init__(self) -> None:
        if self.replicas is not None and not 0 <= self.replicas <= MAX_REPLICAS:
            raise ConfigurationError(
                f"{self.replicas} replicas that confirm are not possible; "
                f"set TOLLKEEPER_REDIS_REPLICAS from 0 to {MAX_REPLICAS}"
            )
        if (self.tls.certificate is None) != (self.tls.key is None):
            raise ConfigurationError(
                "a client certificate for Redis needs both TOLLKEEPER_REDIS_CERTIFICATE and TOLLKEEPER_REDIS_KEY"
            )
        parts = self._parts
        if parts.scheme not in _SCHEMES:
            raise ConfigurationError(f"the Redis URL begins with {parts.scheme!r}; give {_FORMS}")
        if parts.scheme == "unix":
            if parts.netloc or not parts.path.strip("/"):
                raise ConfigurationError(f"the Redis URL {self.shown} names no socket; give {_FORMS}")
        else:
            _check_hosts(self.shown, self.hosts)
            if parts.query:
                raise ConfigurationError(
                    f"the Redis URL {self.shown} has parameters, which are not read; leave them out"
                )
        if self.sentinel_user and not self.sentinel_password:
            raise ConfigurationError(
                "a user for the Sentinels needs its password; set TOLLKEEPER_REDIS_SENTINEL_PASSWORD"
            )
        if self.kind == "sentinel" and not self.primary_name:
            raise ConfigurationError(f"the Redis URL {self.shown} names no primary for Sentinel; give {_FORMS}")
        if not self._database_text.isdecimal():
            raise ConfigurationError(
                f"the Redis URL names the database {self._database_text!r}, which is not a number; give {_FORMS}"
            )
        if self.kind == "cluster" and self.database:
            raise ConfigurationError(
                f"the Redis URL names the database {self.database}, and a Redis Cluster has only database 0; give 0"
            )

    @cached_property
    def kind(self) -> Kind:
        """Return what the URL names: one server, its socket, a cluster, or Sentinels."""
        if self._parts.scheme == "unix":
            return "socket"
        if self._parts.scheme.endswith("+sentinel"):
            return "sentinel"
        return "cluster" if len(self.hosts) > 1 else "server"

    @cached_property
    def hosts(self) -> tuple[Host, ...]:
        """Return the hosts in order: servers, nodes of a cluster, or Sentinels; empty for a socket."""
        if self._parts.scheme == "unix":
            return ()
        default = _SENTINEL_PORT if self._parts.scheme.endswith("+sentinel") else _PORT
        return tuple(_host(text, default) for text in self._netloc.split(","))

    @cached_property
    def credentials(self) -> tuple[str | None, str | None]:
        """Return user and password of the servers."""
        before, at, _ = self._parts.netloc.rpartition("@")
        if not at:
            return None, None
        user, _, password = before.partition(":")
        return unquote(user) or None, unquote(password) or None

    @property
    def sentinel_credentials(self) -> tuple[str | None, str | None]:
        """Return user and password of the Sentinels."""
        return self.sentinel_user or None, self.sentinel_password or None

    @cached_property
    def database(self) -> int:
        """Return the database's number."""
        return int(self._database_text)

    @cached_property
    def primary_name(self) -> str:
        """Return the name under which Sentinels know the primary; empty without Sentinels."""
        return self._path[0] if self.kind == "sentinel" else ""

    @property
    def socket_path(self) -> str:
        """Return the path of a `unix` URL."""
        return self._parts.path

    @cached_property
    def is_encrypted(self) -> bool:
        """Return whether the servers speak TLS."""
        return self._parts.scheme.startswith("rediss")

    @cached_property
    def confirming_replicas(self) -> int:
        """Return how many replicas must confirm a batch before it counts."""
        if self.replicas is not None:
            return self.replicas
        return 1 if self.kind in ("cluster", "sentinel") else 0

    @property
    def shown(self) -> str:
        """Return the URL for logs and messages: without user, password and parameters."""
        return f"{self._parts.scheme}://{self._netloc}{self._parts.path}"

    @cached_property
    def _parts(self) -> SplitResult:
        """Return the URL's parts; the standard library does not parse an IPv6 address among several hosts."""
        scheme, colon, rest = self.url.partition("://")
        if not colon:
            return SplitResult(self.url.partition(":")[0].lower(), "", "", "", "")
        rest, _, query = rest.partition("?")
        netloc, slash, path = rest.partition("/")
        return SplitResult(scheme.lower(), netloc, slash + path, query, "")

    @property
    def _netloc(self) -> str:
        return self._parts.netloc.rsplit("@", 1)[-1]

    @property
    def _path(self) -> list[str]:
        return self._parts.path.strip("/").split("/")

    @property
    def _database_text(self) -> str:
        if self._parts.scheme == "unix":
            return parse_qs(self._parts.query).get("db", ["0"])[0]
        if self._parts.scheme.endswith("+sentinel"):
            return "/".join(self._path[1:]) or "0"
        return "/".join(self._path) or "0"


@dataclass(frozen=True)
class RedisDependencies:
    """Credentials and TLS files of an installation, which apply to each Redis whose URL needs them."""

    tls: TlsFiles = TlsFiles()
    sentinel_user: str = ""
    sentinel_password: str = field(default="", repr=False)

    def address(self, url: str, replicas: int | None) -> CountersAddress:
        """Return the address of one Redis: with TLS files or the Sentinels' password only if the URL needs them.

        Raises ConfigurationError as CountersAddress does.
        """
        scheme = url.partition(":")[0].lower()
        tls = self.tls if scheme.startswith("rediss") else TlsFiles()
        is_watched = scheme.endswith("+sentinel")
        user, password = (self.sentinel_user, self.sentinel_password) if is_watched else ("", "")
        return CountersAddress(url, replicas, tls, user, password)

    def require_use(self, addresses: Sequence[CountersAddress]) -> None:
        """Raise ConfigurationError if a setting is given that none of the addresses uses."""
        shown = " and ".join(address.shown for address in addresses)
        named = f"the Redis URL {shown or '(none is set)'}"
        if self.tls.paths and not any(address.is_encrypted for address in addresses):
            raise ConfigurationError(
                f"{named} is without TLS, so TOLLKEEPER_REDIS_CA and the certificate have no use; "
                "begin the URL with rediss, or leave them out"
            )
        has_credentials = bool(self.sentinel_user or self.sentinel_password)
        if has_credentials and not any(address.kind == "sentinel" for address in addresses):
            raise ConfigurationError(
                f"{named} names no Sentinels, so TOLLKEEPER_REDIS_SENTINEL_PASSWORD and _USER have no use; "
                "begin the URL with redis+sentinel, or leave them out"
            )


def _host(text: str, default: int) -> Host:
    """Return host and port of `HOST:PORT`. Raises ConfigurationError if the port is unusable."""
    try:
        parts = urlsplit(f"//{text}")
        return parts.hostname or "", default if parts.port is None else parts.port
    except ValueError as error:
        raise ConfigurationError(
            f"the Redis URL has a port that is not a number within 1 to 65535; give {_FORMS}"
        ) from error


def _check_hosts(shown: str, hosts: tuple[Host, ...]) -> None:
    for host, port in hosts:
        if port == 0:
            raise ConfigurationError(f"the Redis URL {shown} has port 0; give {_FORMS}")
        if not host:
            raise ConfigurationError(f"the Redis URL {shown} names no host; give {_FORMS}")
    if len(set(hosts)) < len(hosts):
        raise ConfigurationError(f"the Redis URL {shown} names a host twice; name each once")
