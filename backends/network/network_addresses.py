"""Parsing of network addresses from peers and headers, and checks for loopback and networks."""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

from contracts.errors import ConfigurationError

Address = IPv4Address | IPv6Address
Networks = tuple[IPv4Network | IPv6Network, ...]
_LONGEST_REMEMBERED: Final = 64  # characters


def address_of(text: str) -> Address | None:
    """Parse an IP address (IPv4-mapped IPv6 as IPv4); return `None` if it is not one."""
    return _remembered(text) if len(text) <= _LONGEST_REMEMBERED else _read(text)


def _read(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


_remembered: Final = lru_cache(maxsize=4096)(_read)  # all requests of a connection have the same address


def is_loopback(text: str) -> bool:
    """Return whether an address is a loopback address."""
    address = address_of(text)
    return address is not None and address.is_loopback


def listens_on_loopback(host: str) -> bool:
    """Return whether a listener on this address or name is reachable from this machine only."""
    return host == "localhost" or is_loopback(host)


def is_within(address: Address, networks: Networks) -> bool:
    """Return whether an address is in one of the networks."""
    return any(address in network for network in networks)


def networks_of(names: Iterable[str]) -> Networks:
    """Parse networks; bits beyond the prefix are ignored. Raises ValueError."""
    return tuple(ipaddress.ip_network(name, strict=False) for name in names)


def read_trusted_proxies(text: str) -> Networks:
    """Parse TOLLKEEPER_TRUSTED_PROXIES, comma-separated networks. Raises ConfigurationError."""
    try:
        return networks_of(name for part in text.split(",") if (name := part.strip()))
    except ValueError as error:
        raise ConfigurationError(
            f"TOLLKEEPER_TRUSTED_PROXIES: {error}; write networks such as 10.0.0.0/8 with commas between"
        ) from error
