"""Count distinct addresses or user agents of a key over a recent window, up to a bound."""

from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Final

_IPV4_SHOWN: Final = 24  # bits of an address that are kept for people: a network, not a person
_IPV6_SHOWN: Final = 48
_IPV6_OWN: Final = 64  # bits that one customer of a network has: addresses within are one face (RFC 6177)
_LONGEST: Final = 200
_MOST_REMEMBERED: Final = 4096  # addresses whose faces need not be found out again


class Faces:
    """Distinct names seen in a window, up to one more than a limit. Times are nanoseconds that do not fall."""

    def __init__(self, limit: int, window_seconds: float) -> None:
        self._limit = limit
        self._window_ns = int(window_seconds * 1_000_000_000)
        self._seen_at: dict[str, int] = {}  # the latest seen last

    def __len__(self) -> int:
        return len(self._seen_at)

    def is_new(self, name: str, now_ns: int) -> bool:
        """Return whether a name was not seen in the window."""
        seen = self._seen_at.get(name)
        return seen is None or now_ns - seen >= self._window_ns

    def add(self, name: str, now_ns: int) -> None:
        """See a name."""
        self._seen_at.pop(name, None)
        self._seen_at[name] = now_ns
        self._forget(now_ns)
        if len(self._seen_at) > self._limit + 1:
            del self._seen_at[next(iter(self._seen_at))]

    def count(self, now_ns: int) -> int:
        """Return how many distinct ones there were in the window, counted to one above the limit."""
        self._forget(now_ns)
        return len(self._seen_at)

    def seconds_until_free(self, now_ns: int) -> float:
        """Return after how many seconds the one that was not seen for longest is forgotten, if it is not seen again."""
        self._forget(now_ns)
        first = next(iter(self._seen_at.values()), now_ns - self._window_ns)
        return max(first + self._window_ns - now_ns, 0) / 1_000_000_000

    def names(self) -> list[str]:
        """Return the names, the latest seen last."""
        return list(self._seen_at)

    def _forget(self, now_ns: int) -> None:
        while self._seen_at:
            name = next(iter(self._seen_at))
            if now_ns - self._seen_at[name] < self._window_ns:
                return
            del self._seen_at[name]


@lru_cache(_MOST_REMEMBERED)
def address_face(address: str) -> str:
    """Return what counts as one address: an IPv4 address, or an IPv6 one's first 64 bits; other text as it is."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:_LONGEST]
    if found.version == 6 and (plain := found.ipv4_mapped) is not None:
        return str(plain)
    return str(found) if found.version == 4 else str(ip_network((int(found), _IPV6_OWN), strict=False))


@lru_cache(_MOST_REMEMBERED)
def shown_address(face: str) -> str:
    """Return what may be shown of an address's face: its network, "203.0.113.0/24" or "2001:db8::/48"."""
    try:
        network = ip_network(face, strict=False)
    except ValueError:
        return "unknown"
    bits = _IPV4_SHOWN if network.version == 4 else _IPV6_SHOWN
    return str(ip_network((int(network.network_address), bits), strict=False))


def agent_face(user_agent: str) -> str:
    """Return what counts as one user agent: its text, shortened; empty for none."""
    return user_agent[:_LONGEST].strip()
