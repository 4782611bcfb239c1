"""Floods of keys that nobody has: limited by address, told the truth, in bounded memory; valid keys are not held up."""

import asyncio
import logging
import tracemalloc
from dataclasses import replace
from ipaddress import IPv6Address, ip_address

import pytest
from msgspec import structs

from contracts.errors import LimitExceeded
from gateway.identity.guess_limit import MAX_ADDRESSES, GuessLimit, UnknownCredential

SECOND = 1_000_000_000
FAILURE = UnknownCredential("unknown")
HERE = ip_address("192.0.2.1")


def outcomes(limit, times, now_ns=0, address=HERE):
    """Count the failures that are answered as such."""
    return sum(limit.answer_to(FAILURE, address, now_ns) is FAILURE for _ in range(times))


def test_as_many_failures_as_stated_are_answered_and_no_more():
    limit = GuessLimit(30)
    assert outcomes(limit, 29) == 29
    assert outcomes(limit, 1) == 1
    refusal = limit.answer_to(FAILURE, HERE, 0)
    assert isinstance(refusal, LimitExceeded) and refusal.should_retry is False
    assert limit.refused == 1


@pytest.mark.parametrize("per_minute", [1, 2, 30, 7, 1000])
def test_waiting_as_told_helps_and_waiting_less_does_not(per_minute):
    limit = GuessLimit(per_minute)
    outcomes(limit, per_minute)
    wait = limit.answer_to(FAILURE, HERE, 0).retry_after_seconds
    for _ in range(100):  # refused guesses do not make the wait longer
        assert limit.answer_to(FAILURE, HERE, 0).retry_after_seconds == wait
    assert wait is not None
    told_ns = round(wait * SECOND)
    assert isinstance(limit.answer_to(FAILURE, HERE, told_ns - 1), LimitExceeded)
    assert limit.answer_to(FAILURE, HERE, told_ns) is FAILURE
    assert isinstance(limit.answer_to(FAILURE, HERE, told_ns), LimitExceeded)


def test_failures_are_forgotten_within_a_minute():
    limit = GuessLimit(30)
    assert outcomes(limit, 100) == 30
    assert outcomes(limit, 100, 30 * SECOND) == 15
    assert outcomes(limit, 100, 90 * SECOND) == 30


def test_addresses_are_counted_apart_and_an_ipv6_network_of_64_bits_as_one():
    limit = GuessLimit(3)
    assert outcomes(limit, 9) == 3
    assert outcomes(limit, 9, address=ip_address("192.0.2.2")) == 3
    assert outcomes(limit, 2, address=ip_address("2001:db8:0:1::1")) == 2
    assert outcomes(limit, 9, address=ip_address("2001:db8:0:1:ffff:ffff:ffff:ffff")) == 1
    assert outcomes(limit, 9, address=ip_address("2001:db8:0:2::")) == 3
    assert outcomes(limit, 9, address=ip_address("::c000:201")) == 3  # not 192.0.2.1, whose number it has
    assert outcomes(limit, 9, address=None) == 3


def test_a_bounded_number_of_addresses_is_remembered_the_latest_ones():
    limit = GuessLimit(2, max_addresses=100)
    for number in range(100):
        outcomes(limit, 2, address=ip_address(number))
    assert len(limit) == 100
    outcomes(limit, 1, address=ip_address(1000))
    assert len(limit) == 100
    assert outcomes(limit, 1, address=ip_address(1)) == 0  # still known
    assert outcomes(limit, 1, address=ip_address(0)) == 1  # forgotten: the first to fail


def test_what_is_forgotten_leaves_memory_without_being_asked_for():
    limit = GuessLimit(30)
    for number in range(1000):
        outcomes(limit, 1, address=ip_address(number))
    for number in range(500):
        outcomes(limit, 1, 60 * SECOND, ip_address(2000 + number))
    assert len(limit) == 500


def test_a_flood_from_more_addresses_than_are_remembered_takes_less_than_16_mib():
    limit = GuessLimit(30)
    tracemalloc.start()
    for number in range(MAX_ADDRESSES + 5000):
        limit.answer_to(FAILURE, IPv6Address((0x20010DB8 << 96) + (number << 64)), number)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(limit) == MAX_ADDRESSES
    assert held < 16 << 20, held


def unknown(number):
    return {"Authorization": f"Bearer tk-{number:043d}"}


async def test_a_valid_key_passes_in_the_midst_of_a_flood(gateway, caplog):
    caplog.set_level(logging.INFO)
    answers = []
    for number in range(40):
        answers.append(await gateway.chat(headers=unknown(number)))
        assert (await gateway.chat()).status == 200
    assert [answer.status for answer in answers] == [401] * 30 + [429] * 10
    last = answers[-1]
    assert (last.error["code"], last.error["type"]) == ("rate_limit_exceeded", "rate_limit_error")
    assert "30 unknown API keys" in last.error["message"]
    assert int(last.headers["retry-after"]) in (1, 2)
    assert len(gateway.requests()) == 40  # those of the valid key
    assert "tk-" not in caplog.text and len(caplog.records) < 10
    ready = await gateway.ask(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
    assert ready.json["refused_key_guesses"] == 10


async def test_what_is_known_or_missing_is_no_guess(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(config, invalid_keys_per_minute=1)
    directory = gateway.gateway.directory
    before = directory.snapshot
    keys = {digest: structs.replace(entry, expires_at_ns=1) for digest, entry in before.keys.items()}
    directory.snapshot = replace(before, keys=keys)
    for _ in range(5):
        assert "expired" in (await gateway.chat()).error["message"]
        assert (await gateway.chat(headers={"Authorization": ""})).status == 401
        assert (await gateway.chat(headers={"Authorization": "Basic dTpw"})).status == 401
    assert (await gateway.chat(headers=unknown(1))).status == 401
    assert (await gateway.chat(headers=unknown(2))).status == 429
    assert "expired" in (await gateway.chat()).error["message"]  # also in the midst of a flood


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/scripted-1", "/v1/chat/completions"])
@pytest.mark.parametrize("key", ["tk-" + "Z" * 43, "nonsense", "a.b.c"])
async def test_every_path_and_every_kind_of_guess_counts(start_gateway, kit, path, key):
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(config, invalid_keys_per_minute=2)
    method = "POST" if path.endswith("completions") else "GET"
    request = f"{method} {path} HTTP/1.1\r\nHost: a\r\nX-Api-Key: {key}\r\nContent-Length: 0\r\n\r\n".encode()
    assert [(await gateway.ask(request)).status for _ in range(4)] == [401, 401, 429, 429]


async def test_behind_a_proxy_each_caller_is_counted_for_itself(start_gateway, kit):
    config = kit.configuration(("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(config, invalid_keys_per_minute=2, trusted_proxies="127.0.0.1")

    async def guess(address):
        return (await gateway.chat(headers={**unknown(1), "X-Forwarded-For": address})).status

    assert [await guess("192.0.2.1") for _ in range(3)] == [401, 401, 429]
    assert await guess("192.0.2.2") == 401
    assert await guess("192.0.2.2, 192.0.2.1") == 429  # what a caller puts before itself does not help it


async def test_a_flood_on_many_connections_does_not_hold_up_a_valid_key(gateway):
    async def flood(start):
        client = await gateway.connect()
        for number in range(start, start + 100):
            await client.send(gateway.request(headers=unknown(number)))
            assert (await client.answer()).status in (401, 429)

    floods = [asyncio.create_task(flood(number * 1000)) for number in range(8)]
    while not all(task.done() for task in floods):
        assert (await gateway.chat()).status == 200
    await asyncio.gather(*floods)
    assert gateway.gateway._authenticator._guesses.refused >= 8 * 100 - 31
