"""Which addresses may be called: public ones, and networks that the operator named.

Who may write a webhook's URL could otherwise have this machine call what only it can reach: the store, a cloud's
metadata service. A name is looked up once, and what was checked is what is called.
"""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class InwardAddress(Exception):
    """A host leads to an address that must not be called; the message says which host and what to do."""


async def reachable_address(host: str, port: int, allowed: Sequence[Network]) -> str:
    """Look a host up and give an address of it that may be called. Raises InwardAddress, and OSError where unknown."""
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
    """Say whether an address is public, or in a network that is allowed."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    plain: Address = mapped or address
    if any(plain.version == network.version and plain in network for network in allowed):
        return True
    return plain.is_global and not plain.is_multicast
