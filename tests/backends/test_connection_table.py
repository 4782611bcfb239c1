"""Shares by address and by IPv6 network, and the invariants of admission for whatever comes, idles and leaves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.network.connection_table import PROBES, ConnectionLimits, ConnectionTable
from contracts.errors import ConfigurationError


class Connection:
    """Idle from its begin until it is made busy."""

    def __init__(self, at: float = 0.0) -> None:
        self.idle_since: float | None = at
        self.has_given_way = False

    def give_way(self) -> None:
        self.has_given_way = True


def admitted(table: ConnectionTable, *addresses: str) -> list[Connection]:
    made = []
    for number, address in enumerate(addresses):
        connection = Connection(number)
        assert table.admit(connection, address, number)
        made.append(connection)
    return made


@pytest.mark.parametrize(
    ("addresses", "gives_way"),
    [
        (("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:0:8000::"), True),  # of one /64
        (("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"), False),  # of two
        (("192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"), True),
        (("192.0.2.1", "192.0.2.1", "192.0.2.2"), False),
        (("fe80::1%eth0", "fe80::2%eth0", "fe80::3%eth0"), True),
    ],
)
def test_a_share_is_an_addresses_or_an_ipv6_networks(addresses: tuple[str, ...], gives_way: bool) -> None:
    made = admitted(ConnectionTable(ConnectionLimits(total=100, per_address=2)), *addresses)
    assert [each.has_given_way for each in made] == [gives_way, False, False]


def test_a_network_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="TOLLKEEPER_TRUSTED_PROXIES.*10.0.0.0/99"):
        ConnectionLimits.of(10, None, "10.0.0.0/99")


def test_only_loopback_has_room_for_health_checks() -> None:
    table = ConnectionTable(ConnectionLimits(total=1, per_address=1))
    assert not table.admit_probe(Connection(), "192.0.2.1", 0.0)
    probes = [Connection(number) for number in range(PROBES + 1)]
    assert all(table.admit_probe(probe, "::1", number) for number, probe in enumerate(probes))
    assert [probe.has_given_way for probe in probes] == [True] + [False] * PROBES


@given(
    st.integers(1, 6),
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from(["come", "work", "rest", "leave"]), st.integers(0, 7)), max_size=120),
)
def test_limits_hold_and_only_the_longest_idle_gives_way(total: int, share: int, steps: list[tuple[str, int]]) -> None:
    table = ConnectionTable(ConnectionLimits(total, share))
    held: list[tuple[Connection, int]] = []
    for moment, (what, which) in enumerate(steps):
        if what == "come":
            address, new = which % 4, Connection(moment)
            own = [each for each, owner in held if owner == address]
            crowd = own if len(own) >= min(share, total) else [each for each, _ in held] if len(held) >= total else None
            idle = [each.idle_since for each in crowd or [] if each.idle_since is not None]
            taken = table.admit(new, f"192.0.2.{address}", moment)
            assert taken == (crowd is None or bool(idle))
            gone = [each for each, _ in held if each.has_given_way]
            assert [each.idle_since for each in gone] == ([min(idle)] if crowd is not None and idle else [])
            held = [(each, owner) for each, owner in held if not each.has_given_way]
            if taken:
                held.append((new, address))
        elif held:
            connection, owner = held[which % len(held)]
            if what == "leave":
                table.discard(connection)
                held.remove((connection, owner))
            else:
                connection.idle_since = None if what == "work" else moment
        assert len(table) == len(held) <= total
