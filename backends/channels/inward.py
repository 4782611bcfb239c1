"""Checks addresses before a call: allows public ones, and networks that the operator allows.

Otherwise the author of a webhook's URL could make this machine call what only it can reach: the store, a cloud's
metadata service. A name is looked up once, and the checked address is the one that is called.
"""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, Final

from pydantic import AfterValidator

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# NAT64 translators forward to the IPv4 address in the last four bytes (RFC 6052, section 2.1).
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")  # RFC 4291: all other addresses are local, retired or unassigned
# Global according to the standard library, but answered by the local platform or network.
_SURROUNDINGS: Final[tuple[Network, ...]] = (
    ip_network("168.63.129.16/32"),  # Azure's platform, on every machine there
    ip_network("192.0.0.0/24"),  # RFC 6890: for protocols; Oracle's metadata are at .192
    ip_network("192.88.99.0/24"),  # RFC 7526: a retired relay
)


def read_networks(text: str) -> tuple[Network, ...]:
    """Read networks, comma-separated, such as "10.0.0.0/8, 127.0.0.1/32". Raises ValueError."""
    return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())


def _checked(text: str) -> str:
    read_networks(text)
    return text


NetworksText = Annotated[str, AfterValidator(_checked)]  # a setting that `read_networks` reads


class InwardAddress(Exception):
    """A host resolves to an address that must not be called; the message says which host and what to do."""


async def reachable_address(host: str, port: int, allowed: Sequence[Network]) -> str:
    """Resolve a host and return one of its addresses that may be called. Raises InwardAddress, and OSError
    if unknown.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    addresses = [ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    for address in addresses:
        if is_allowed(address, allowed):
            return str(address)
    raise InwardAddress(
        f"{host} is an inward address, which notices do not go to; the operator may allow its network in "
        "TOLLKEEPER_ALERTS_INWARD"
    )


def is_allowed(address: Address, allowed: Sequence[Network]) -> bool:
    """Return whether an address is public, or in a network that is allowed."""
    plain = _meant(address)
    if any(plain.version == network.version and plain in network for network in allowed):
        return True
    if any(plain.version == network.version and plain in network for network in _SURROUNDINGS):
        return False
    if isinstance(plain, IPv6Address) and plain not in _GLOBAL_UNICAST:
        return False
    return plain.is_global and not plain.is_multicast


def _meant(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one represents, if it does: mapped, translated (NAT64) or 6to4."""
    if isinstance(address, IPv4Address):
        return address
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
