"""The connections of a server: limits in total and per client network; idle ones are evicted."""

import heapq
import itertools
import logging
import resource
from collections.abc import Hashable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from typing import Final, Protocol

from backends.network.network_addresses import Address, Networks, address_of, is_within, read_trusted_proxies

_log = logging.getLogger(__name__)

PROBES: Final = 16  # connections for health checks from this machine, besides the total
_MOST_LOOKED_AT: Final = 256  # connections checked to find an idle one; the next search continues from there
_STALE_ENTRIES: Final = 64
# Bits of an IPv6 address that a client can choose freely (RFC 6177), so limits are per network.
_IPV6_CLIENT_BITS: Final = 64
_WARN_SECONDS: Final = 60.0


class Held(Hashable, Protocol):
    """A connection in the table."""

    @property
    def idle_since(self) -> float | None:
        """Return since when no request has been in progress, by the clock of `admit`; `None` while one is."""

    def give_way(self) -> None:
        """Close now."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Maximum connections in total and per address (IPv6: per /64). `exempt` networks have no limit and are not
    evicted.
    """

    total: int
    per_address: int
    exempt: Networks = ()

    @classmethod
    def of(cls, total: int, per_address: int | None, exempt: str) -> "ConnectionLimits":
        """Return the limits from settings; the default per address is a quarter of the total.

        Raises ConfigurationError if a network is invalid.
        """
        return cls(total, per_address or max(1, total // 4), read_trusted_proxies(exempt))


class ConnectionTable:
    """Admits connections. At a limit, the longest idle connection is evicted; busy ones never are."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._total = _possible_connections(limits.total)
        self._per_address = min(limits.per_address, self._total)
        self._exempt = limits.exempt
        self._network_of: dict[Held, str] = {}
        self._all = _ByIdleness()
        self._shares: dict[str, _ByIdleness] = {}
        self._probes = _ByIdleness()
        self._warn_at = 0.0
        self.gave_way = 0
        self.refused = 0

    def __len__(self) -> int:
        return len(self._network_of) + len(self._probes)

    def admit(self, connection: Held, peer: str, now: float) -> bool:
        """Add a connection from address `peer`; return false if the limit is reached and no connection is idle."""
        address = address_of(peer.partition("%")[0])
        network = _network_of(address)
        is_exempt = address is not None and is_within(address, self._exempt)
        share = self._shares.get(network)
        if not is_exempt and share is not None and len(share) >= self._per_address:
            if not self._makes_room(share, now, network):
                return False
        if len(self._network_of) >= self._total and not self._makes_room(self._all, now, network):
            return False
        self._network_of[connection] = network
        if not is_exempt:
            self._all.add(connection, now)
            self._shares.setdefault(network, _ByIdleness()).add(connection, now)
        return True

    def admit_probe(self, connection: Held, peer: str, now: float) -> bool:
        """Add a connection for health checks only; return false if it is not from this machine.

        There is always room, because health checks are short and idle connections are evicted.
        """
        address = address_of(peer.partition("%")[0])
        if address is None or not address.is_loopback:
            return False
        if len(self._probes) >= PROBES and not self._makes_room(self._probes, now, "loopback health checks"):
            return False
        self._probes.add(connection, now)
        return True

    def holds(self, connection: Held) -> bool:
        """Return whether a connection is in the table, that is, not evicted."""
        return connection in self._network_of or connection in self._probes

    def replace(self, connection: Held, by: Held, now: float) -> None:
        """Replace a connection's entry, such as that of a handshake by that of the established connection."""
        if self._probes.discard(connection):
            self._probes.add(by, now)
            return
        network = self._network_of.pop(connection)
        self._network_of[by] = network
        if self._all.discard(connection):
            self._all.add(by, now)
            share = self._shares[network]
            share.discard(connection)
            share.add(by, now)

    def discard(self, connection: Held) -> None:
        """Remove a connection that has ended. Does nothing if it is not in the table."""
        self._probes.discard(connection)
        network = self._network_of.pop(connection, None)
        if network is None or not self._all.discard(connection):
            return
        share = self._shares[network]
        share.discard(connection)
        if not len(share):
            del self._shares[network]

    def _makes_room(self, among: "_ByIdleness", now: float, network: str) -> bool:
        found = among.longest_idle(now)
        if found is None:
            self.refused += 1
        else:
            self.gave_way += 1
            self.discard(found)
            found.give_way()
        if now >= self._warn_at:
            self._warn_at = now + _WARN_SECONDS
            _log.warning(
                "connection limit reached",
                extra={"network": network, "held": len(self), "gave_way": self.gave_way, "refused": self.refused},
            )
        return found is not None


class _ByIdleness:
    """Connections ordered by idle time. Entries are corrected lazily, when a search meets them."""

    def __init__(self) -> None:
        self._number_of: dict[Held, int] = {}
        self._by_number: dict[int, Held] = {}
        self._entries: list[tuple[float, int]] = []  # last known start of idleness, and number of the connection
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._number_of)

    def __contains__(self, connection: object) -> bool:
        return connection in self._number_of

    def add(self, connection: Held, now: float) -> None:
        if len(self._entries) > 2 * len(self._number_of) + _STALE_ENTRIES:
            self._entries = [entry for entry in self._entries if entry[1] in self._by_number]
            heapq.heapify(self._entries)
        number = self._number_of[connection] = next(self._numbers)
        self._by_number[number] = connection
        heapq.heappush(self._entries, (now, number))

    def discard(self, connection: Held) -> bool:
        """Remove a connection; return whether it was a member."""
        number = self._number_of.pop(connection, None)
        if number is None:
            return False
        del self._by_number[number]
        return True

    def longest_idle(self, now: float) -> Held | None:
        """Return the connection that has been idle longest; `None` if all that were checked are busy."""
        looked_at = 0
        entries = self._entries
        while entries and looked_at < _MOST_LOOKED_AT:
            since, number = entries[0]
            connection = self._by_number.get(number)
            if connection is None:
                heapq.heappop(entries)
                continue
            idle_since = connection.idle_since
            if idle_since is not None and idle_since <= since:
                return connection
            looked_at += 1
            heapq.heapreplace(entries, (now if idle_since is None else idle_since, number))
        return None


def _network_of(address: Address | None) -> str:
    """Return the client's network: an IPv4 address, or an IPv6 /64; empty if there is no address."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address) >> _IPV6_CLIENT_BITS << _IPV6_CLIENT_BITS, _IPV6_CLIENT_BITS)))
    return "" if address is None else str(address)


def _possible_connections(wanted: int) -> int:
    """Raise this process's limit of open files as far as allowed; return how many of the wanted connections fit.

    Without a free descriptor, the event loop would stop accepting for a second, health checks included.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        soft = hard
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # the hard limit is infinite, but the system refuses it
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    room = wanted if soft == resource.RLIM_INFINITY else max(1, soft * 3 // 4)
    if room < wanted:
        _log.warning(
            "fewer connections than set: the limit of open files is too low",
            extra={"max_connections": wanted, "connections": room, "open_files": soft},
        )
    return min(wanted, room)
