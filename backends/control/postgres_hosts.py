"""The hosts in a PostgreSQL URL: one, or several of which one at a time accepts writes."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import URL

from contracts.errors import ConfigurationError

Host = tuple[str, int]

_PORT: Final = 5432


def split_hosts(url: str) -> tuple[str, tuple[Host, ...]]:
    """Return the URL with its first host only, and all hosts of `postgresql://USER@HOST:PORT,HOST:PORT/NAME`.

    Raises ConfigurationError if a host or port is unusable.
    """
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    before, at, listed = authority.rpartition("@")
    if "," not in listed or not scheme.startswith("postgres"):
        return url, ()
    hosts = tuple(_host(text) for text in listed.split(","))
    if len(set(hosts)) < len(hosts):
        raise ConfigurationError("TOLLKEEPER_DATABASE_URL names a host twice; name each once")
    first = listed.split(",", maxsplit=1)[0]
    return f"{scheme}{separator}{before}{at}{first}{slash}{path}", hosts


def hosts_of(url: URL) -> tuple[Host, ...]:
    """Return the hosts of a URL that names several; empty if it names one."""
    listed = url.query.get("host", ())
    texts = [listed] if isinstance(listed, str) else list(listed)
    return tuple(_host(text) for text in texts) if len(texts) > 1 else ()


def with_hosts(url: URL, hosts: Sequence[Host]) -> URL:
    """Return the URL that names several hosts, as SQLAlchemy writes it."""
    named = tuple(f"{host}:{port}" for host, port in hosts)
    parameters = {**without_hosts(url), "host": named}
    return URL.create(url.drivername, url.username, url.password, database=url.database, query=parameters)


def _host(text: str) -> Host:
    host, _, port = text.rpartition(":") if ":" in text.rpartition("]")[2] else (text, "", "")
    if not port:
        port = str(_PORT)
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise ConfigurationError(
            f"TOLLKEEPER_DATABASE_URL names the host {text!r}; give HOST:PORT with a port from 1 to 65535"
        )
    return host.strip("[]"), int(port)


def without_hosts(url: URL) -> dict[str, Any]:
    """Return a URL's parameters except those that name hosts and select one of them."""
    return {name: value for name, value in url.query.items() if name not in ("host", "target_session_attrs")}
