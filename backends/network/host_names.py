"""Allowed host names of requests, against DNS rebinding.

In DNS rebinding, an attacker's name resolves to 127.0.0.1, so that the browser on this machine sends requests here
under that name. IP addresses are always allowed: only pages loaded from that address can use it.
"""

from typing import Final

from backends.network.network_addresses import address_of, listens_on_loopback
from contracts.errors import HostNotAllowed

_MOST_REMEMBERED: Final = 1_000


class HostNames:
    """Checks Host headers. Loopback names, addresses and the comma-separated `names` are allowed."""

    def __init__(self, names: str = "") -> None:
        self._names = frozenset(each.strip().lower().rstrip(".") for each in names.split(",") if each.strip())
        self._allowed: set[bytes] = set()

    @classmethod
    def of(cls, listens_on: str, names: str) -> "HostNames | None":
        """Return the check for a listener; `None` if other machines can reach it and no names are configured."""
        return cls(names) if names.strip() or listens_on_loopback(listens_on) else None

    def check(self, host: bytes) -> None:
        """Raise HostNotAllowed if a Host header is not allowed."""
        if host in self._allowed:
            return
        if not self._allows(host.decode("latin-1").strip().lower()):
            raise HostNotAllowed(
                "the Host header names another host than this listener allows; use localhost or an IP address, or add "
                "the name to TOLLKEEPER_ALLOWED_HOSTS"
            )
        if len(self._allowed) >= _MOST_REMEMBERED:
            self._allowed.clear()
        self._allowed.add(host)

    def _allows(self, host: str) -> bool:
        name = _without_port(host)
        if not name or name == "localhost" or name.endswith(".localhost") or name in self._names:  # RFC 6761, 6.3
            return True
        return address_of(name) is not None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")
