"""Where a key may be used from: its networks, and whom the gateway believes about the caller's address."""

from dataclasses import replace
from ipaddress import ip_address

import pytest
from msgspec import structs

from backends.network.network_addresses import address_of
from contracts.errors import ConfigurationError
from contracts.serving.configuration import KeyPolicy
from gateway.identity import caller_address
from gateway.identity.caller_address import AddressRanges, TrustedProxies

PEER = "10.1.0.1"


@pytest.mark.parametrize(
    ("ranges", "address", "is_allowed"),
    [
        (("10.0.0.0/8",), "9.255.255.255", False),
        (("10.0.0.0/8",), "10.0.0.0", True),
        (("10.0.0.0/8",), "10.255.255.255", True),
        (("10.0.0.0/8",), "11.0.0.0", False),
        (("192.0.2.7/32",), "192.0.2.6", False),
        (("192.0.2.7",), "192.0.2.7", True),
        (("192.0.2.7/32",), "192.0.2.8", False),
        (("2001:db8::/32",), "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", False),
        (("2001:db8::/32",), "2001:db8::", True),
        (("2001:db8::/32",), "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", True),
        (("2001:db8::/32",), "2001:db9::", False),
        (("10.0.0.0/8",), "::ffff:10.0.0.1", True),  # a socket for both families shows IPv4 callers so
        (("::/0",), "10.0.0.1", False),
        (("0.0.0.0/0",), "2001:db8::1", False),
        (("10.0.0.0/8", "2001:db8::/32"), "2001:db8::1", True),
        ((), "10.0.0.1", False),
        (("nonsense",), "10.0.0.1", False),
        (("nonsense", "10.0.0.0/8"), "10.0.0.1", True),
        (("0.0.0.0/0",), "unknown", False),
    ],
)
def test_an_address_is_held_to_the_networks_first_to_last(ranges, address, is_allowed):
    assert AddressRanges().allow(address_of(address), ranges) is is_allowed


def test_networks_are_parsed_once_and_a_bounded_number_is_kept(monkeypatch):
    monkeypatch.setattr(caller_address, "_MAX_REMEMBERED_RANGES", 3)
    ranges = AddressRanges()
    for number in range(5):
        assert ranges.allow(ip_address(f"10.0.0.{number}"), (f"10.0.0.{number}",))
        assert len(ranges._parsed) <= 3
    monkeypatch.setattr(caller_address, "_readable", None)
    assert ranges.allow(ip_address("10.0.0.4"), ("10.0.0.4",))


@pytest.mark.parametrize(
    ("trusted", "peer", "forwarded", "caller"),
    [
        ("", PEER, "192.0.2.1", PEER),
        ("10.2.0.0/16", PEER, "192.0.2.1", PEER),  # the peer is not a trusted proxy
        ("10.1.0.0/16", PEER, "", PEER),
        ("10.1.0.0/16", PEER, "192.0.2.1", "192.0.2.1"),
        ("10.1.0.0/16", PEER, "127.0.0.1, 192.0.2.1", "192.0.2.1"),  # the left one, the client made up
        ("10.1.0.0/16", PEER, "10.1.0.9, 192.0.2.1", "192.0.2.1"),
        ("10.1.0.0/16", PEER, "192.0.2.1, 10.1.0.2, 10.1.0.3", "192.0.2.1"),
        ("10.1.0.0/16", PEER, "198.51.100.1,192.0.2.1 ,10.1.0.2", "192.0.2.1"),
        ("10.1.0.0/16,10.2.0.0/16", PEER, "192.0.2.1, 10.2.0.2", "192.0.2.1"),
        ("10.1.0.0/16", PEER, "192.0.2.1, 10.2.0.0", "10.2.0.0"),  # one past the network
        ("10.1.0.0/16", PEER, "192.0.2.1, 10.1.255.255", "192.0.2.1"),
        ("10.1.0.0/16", PEER, "10.1.0.7, 10.1.0.2", "10.1.0.7"),  # a proxy calls for itself
        ("10.1.0.0/16", PEER, "192.0.2.1:4711", "192.0.2.1"),
        ("10.1.0.0/16", PEER, "[2001:db8::1]:443", "2001:db8::1"),
        ("10.1.0.0/16", PEER, "[2001:db8::1]", "2001:db8::1"),
        ("10.1.0.0/16", PEER, "2001:db8::1", "2001:db8::1"),
        ("10.1.0.0/16", PEER, "::ffff:192.0.2.1", "192.0.2.1"),
        ("10.1.0.0/16", PEER, "192.0.2.1, unknown", None),  # the proxy does not know; the rest is hearsay
        ("10.1.0.0/16", PEER, "192.0.2.1,", None),
        ("10.1.0.0/16", "::ffff:10.1.0.1", "192.0.2.1", "192.0.2.1"),
        ("2001:db8::/64", "2001:db8::2", "192.0.2.1", "192.0.2.1"),
    ],
)
def test_the_right_most_entry_that_no_trusted_proxy_is_counts(trusted, peer, forwarded, caller):
    found = TrustedProxies(trusted).caller_of(peer, forwarded)
    assert found == (None if caller is None else ip_address(caller))


@pytest.mark.parametrize("value", ["10.0.0.0/33", "proxy.example", "10.0.0.0/8;10.1.0.0/16"])
async def test_a_wrong_list_of_proxies_stops_the_start(start_gateway, kit, value):
    with pytest.raises(ConfigurationError, match="TOLLKEEPER_TRUSTED_PROXIES.*with commas"):
        await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])), trusted_proxies=value)


def bind_key(gateway, *addresses):
    """Bind every key to networks, as a change in the control plane would."""
    directory = gateway.gateway.directory
    policy = KeyPolicy(addresses=addresses)
    keys = {digest: structs.replace(entry, policy=policy) for digest, entry in directory.snapshot.keys.items()}
    directory.snapshot = replace(directory.snapshot, keys=keys)


async def test_a_key_bound_to_networks_works_from_them_only(gateway):
    bind_key(gateway, "127.0.0.0/8")
    assert (await gateway.chat()).status == 200
    bind_key(gateway, "192.0.2.0/24", "2001:db8::/32")
    answer = await gateway.chat()
    assert (answer.status, answer.error["code"], answer.error["type"]) == (
        403,
        "address_not_allowed",
        "permission_error",
    )
    assert "127.0.0.1" in answer.error["message"] and "networks" in answer.error["message"]
    assert "192.0.2" not in answer.error["message"] and "2001" not in answer.error["message"]


async def test_nobody_is_believed_about_addresses_unless_listed(gateway):
    bind_key(gateway, "192.0.2.0/24")
    assert (await gateway.chat(headers={"X-Forwarded-For": "192.0.2.1"})).status == 403


async def test_behind_a_trusted_proxy_the_forwarded_address_counts(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(config, trusted_proxies="127.0.0.0/8, 10.0.0.0/8")
    bind_key(gateway, "192.0.2.0/24")
    assert (await gateway.chat(headers={"X-Forwarded-For": "192.0.2.1"})).status == 200
    assert (await gateway.chat(headers={"X-Forwarded-For": "192.0.2.1, 10.0.0.1"})).status == 200
    spoofed = await gateway.chat(headers={"X-Forwarded-For": "192.0.2.1, 203.0.113.5"})
    assert spoofed.status == 403 and "203.0.113.5" in spoofed.error["message"]
    silent = await gateway.chat(headers={"X-Forwarded-For": "192.0.2.1, unknown"})
    assert silent.status == 403 and "does not tell" in silent.error["message"]


async def test_lines_that_several_proxies_added_are_one_list(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(config, trusted_proxies="127.0.0.0/8,10.0.0.0/8")
    bind_key(gateway, "10.0.0.0/8")  # the last line alone would pass for a caller inside
    lines = "203.0.113.5\r\nX-Forwarded-For: 10.0.0.1"
    answer = await gateway.chat(headers={"X-Forwarded-For": lines})
    assert answer.status == 403 and "203.0.113.5" in answer.error["message"]
