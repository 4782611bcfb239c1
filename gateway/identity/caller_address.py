"""The caller's address: the peer's, or that reported by trusted reverse proxies."""

from functools import lru_cache
from typing import Final

from backends.network.network_addresses import (
    Address,
    Networks,
    address_of,
    is_within,
    networks_of,
    read_trusted_proxies,
)

_MAX_REMEMBERED_RANGES: Final = 10_000


class TrustedProxies:
    """Determines callers' addresses. `networks` are the proxies', comma-separated; empty: none is trusted.

    Raises ConfigurationError if one of them is not a network.
    """

    def __init__(self, networks: str = "") -> None:
        self._networks = read_trusted_proxies(networks)

    def caller_of(self, peer: str, forwarded_for: str) -> Address | None:
        """Return the caller's address; `None` if it is unknown, which is in no network.

        Every proxy appends the address it received from, so the right-most entry that is not a trusted proxy is the
        first one confirmed by a trusted one; entries to its left can be forged.
        """
        address = address_of(peer)
        if not self._networks or not forwarded_for or not self._trusts(address):
            return address
        for entry in reversed(forwarded_for.split(",")):
            address = address_of(_without_port(entry.strip()))
            if not self._trusts(address):
                break
        return address

    def text_of(self, peer: str, forwarded_for: str) -> str:
        """Return the caller's address as text; the peer's unchanged if it is unknown."""
        if not self._networks or not forwarded_for:
            return _plain(peer)
        address = self.caller_of(peer, forwarded_for)
        return peer if address is None else str(address)

    def _trusts(self, address: Address | None) -> bool:
        return address is not None and is_within(address, self._networks)


class AddressRanges:
    """The networks of a key, parsed once and not per request, to check addresses against."""

    def __init__(self) -> None:
        self._parsed: dict[tuple[str, ...], Networks] = {}

    def allow(self, address: Address | None, ranges: tuple[str, ...]) -> bool:
        """Return whether one of the networks contains the address. An invalid network contains none."""
        networks = self._parsed.get(ranges)
        if networks is None:
            if len(self._parsed) >= _MAX_REMEMBERED_RANGES:
                self._parsed.clear()  # snapshots come and go; what is in use is parsed again
            networks = self._parsed[ranges] = _readable(ranges)
        return address is not None and is_within(address, networks)


@lru_cache(maxsize=4096)  # every request of a connection comes from the same
def _plain(peer: str) -> str:
    address = address_of(peer)
    return peer if address is None else str(address)


def _readable(ranges: tuple[str, ...]) -> Networks:
    networks: Networks = ()
    for name in ranges:
        try:
            networks += networks_of([name])
        except ValueError:  # the control plane refuses such a range; what came past it must not open the key
            continue
    return networks


def _without_port(entry: str) -> str:
    """Remove the port "192.0.2.1:443", "[2001:db8::1]:443" and the brackets off "[2001:db8::1]"."""
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    return entry.partition(":")[0] if entry.count(":") == 1 else entry
