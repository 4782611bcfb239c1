"""Allowed host names of requests, against DNS rebinding.

A page whose name is made to lead to 127.0.0.1 (DNS rebinding) lets the browser on this machine ask under that name. An
IP address is always allowed: a page that was loaded from an address belongs to that address.
"""

from typing import Final

from backends.network.network_addresses import address_of, listens_on_loopback
from contracts.errors import HostNotAllowed

_MOST_REMEMBERED: Final = 1_000


class HostNames:
    """Checks Host headers. Loopback names and addresses are allowed, and `names`, with commas between them."""

    def __init__(self, names: str = "") -> None:
        self._names = frozenset(each.strip().lower().rstrip(".") for each in names.split(",") if each.strip())
        self._allowed: set[bytes] = set()

    @classmethod
    def of(cls, listens_on: str, names: str) -> "HostNames | None":
        """Return the check of a listener; `None` if other machines reach it and no names are set."""
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
