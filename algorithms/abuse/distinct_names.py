"""Counts a key's distinct addresses or user agents in a recent window, up to a limit."""

from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Final

_IPV4_SHOWN: Final = 24  # bits of an address that are shown: the network instead of a person
_IPV6_SHOWN: Final = 48
_IPV6_OWN: Final = 64  # addresses in one /64 belong to one customer (RFC 6177), so they count as one
_LONGEST: Final = 200
_MOST_REMEMBERED: Final = 4096  # size of the caches below


class DistinctNames:
    """Distinct names (addresses or user agents) seen in a window, up to one above a limit. Times are non-
    decreasing ns.
    """

    def __init__(self, limit: int, window_seconds: float) -> None:
        self._limit = limit
        self._window_ns = int(window_seconds * 1_000_000_000)
        self._seen_at: dict[str, int] = {}  # most recently seen last

    def __len__(self) -> int:
        return len(self._seen_at)

    def is_new(self, name: str, now_ns: int) -> bool:
        """Return whether a name was not seen within the window."""
        seen = self._seen_at.get(name)
        return seen is None or now_ns - seen >= self._window_ns

    def add(self, name: str, now_ns: int) -> None:
        """Record that a name was seen."""
        self._seen_at.pop(name, None)
        self._seen_at[name] = now_ns
        self._forget(now_ns)
        if len(self._seen_at) > self._limit + 1:
            del self._seen_at[next(iter(self._seen_at))]

    def count(self, now_ns: int) -> int:
        """Return the number of distinct names in the window, at most one above the limit."""
        self._forget(now_ns)
        return len(self._seen_at)

    def seconds_until_free(self, now_ns: int) -> float:
        """Return the seconds until the name that was not seen for longest leaves the window, if it is not
        seen again.
        """
        self._forget(now_ns)
        first = next(iter(self._seen_at.values()), now_ns - self._window_ns)
        return max(first + self._window_ns - now_ns, 0) / 1_000_000_000

    def names(self) -> list[str]:
        """Return the names, most recently seen last."""
        return list(self._seen_at)

    def _forget(self, now_ns: int) -> None:
        while self._seen_at:
            name = next(iter(self._seen_at))
            if now_ns - self._seen_at[name] < self._window_ns:
                return
            del self._seen_at[name]


@lru_cache(_MOST_REMEMBERED)
def address_identity(address: str) -> str:
    """Return the identity that an address counts as: an IPv4 address, or an IPv6 /64; other text unchanged."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:_LONGEST]
    if found.version == 6 and (plain := found.ipv4_mapped) is not None:
        return str(plain)
    return str(found) if found.version == 4 else str(ip_network((int(found), _IPV6_OWN), strict=False))


@lru_cache(_MOST_REMEMBERED)
def shown_address(name: str) -> str:
    """Return the network to show for an address's identity: "203.0.113.0/24" or "2001:db8::/48"."""
    try:
        network = ip_network(name, strict=False)
    except ValueError:
        return "unknown"
    bits = _IPV4_SHOWN if network.version == 4 else _IPV6_SHOWN
    return str(ip_network((int(network.network_address), bits), strict=False))


def agent_identity(user_agent: str) -> str:
    """Return the identity that a user agent counts as: its text, truncated; empty for none."""
    return user_agent[:_LONGEST].strip()
