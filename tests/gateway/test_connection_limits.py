"""How many connections a client address may hold, which of them gives way, and that health checks always get in."""

import asyncio
import contextlib

import pytest

from tests.gateway.conftest import KEY, RawClient

HALF_A_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Half: "
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
STRANGER, ANOTHER = "127.0.0.2", "127.0.0.3"


@pytest.fixture
def limited(start_gateway, kit):
    """Start a gateway with these limits."""

    async def start(script=None, **settings):
        return await start_gateway(kit.configuration(("scripted-1", [kit.scripted(**(script or {}))])), **settings)

    return start


async def connect_from(gateway, address):
    opened = asyncio.open_connection("127.0.0.1", gateway.port, local_addr=(address, 0), limit=1 << 20)
    client = RawClient(*await opened)
    gateway._clients.append(client)
    return client


async def open_in_order(gateway, eventually, addresses, data=b""):
    """Connect one after another, each held before the next comes."""
    clients = []
    for address in addresses:
        before = gateway.gateway.health()["connections"]
        clients.append(await connect_from(gateway, address))
        if data:
            await clients[-1].send(data)
        await eventually(lambda before=before: gateway.gateway.health()["connections"] == before + 1)
        await asyncio.sleep(0.002)  # the loop's clock counts milliseconds
    return clients


async def is_open(client):
    with contextlib.suppress(asyncio.TimeoutError):
        return not await client.is_closed(0.05)
    return True


@pytest.mark.parametrize("data", [b"", HALF_A_HEAD], ids=["silent", "half a head"])
async def test_beyond_its_share_an_address_loses_its_own_oldest_idle_connection(limited, eventually, data):
    gateway = await limited(max_connections=20, max_connections_per_address=3)
    others = await open_in_order(gateway, eventually, [ANOTHER])
    held = await open_in_order(gateway, eventually, [STRANGER] * 3, data)
    assert [await is_open(client) for client in held] == [True] * 3, "at its share it keeps all"
    newest = await connect_from(gateway, STRANGER)
    assert await held[0].is_closed()
    assert [await is_open(client) for client in (*held[1:], newest, *others)] == [True] * 4
    assert gateway.gateway.health()["connections"] == 4


async def test_a_thousand_half_heads_keep_nobody_else_out(limited, eventually):
    gateway = await limited(max_connections=100)
    for _ in range(1000):
        client = await connect_from(gateway, STRANGER)
        await client.send(HALF_A_HEAD)
    for address in (ANOTHER, "127.0.0.1"):
        client = await connect_from(gateway, address)
        await client.send(gateway.request())
        assert (await client.answer()).status == 200
    assert gateway.gateway.health()["connections"] <= 27  # a quarter of all, and the two


async def test_at_the_total_the_oldest_idle_connection_of_all_gives_way(limited, eventually):
    gateway = await limited(max_connections=3, max_connections_per_address=3)
    first, second, third = await open_in_order(gateway, eventually, [STRANGER, ANOTHER, "127.0.0.4"])
    await first.send(HEALTH)
    assert (await first.answer()).status == 200  # used later than the second was opened
    newest = await connect_from(gateway, "127.0.0.5")
    assert await second.is_closed()
    assert [await is_open(client) for client in (first, third, newest)] == [True] * 3


async def test_a_busy_connection_never_gives_way_and_health_checks_of_this_machine_still_get_in(limited, eventually):
    gateway = await limited({"tokens": 100_000, "gap_ms": 10}, max_connections=2, max_connections_per_address=2)
    streaming = await open_in_order(gateway, eventually, [STRANGER, ANOTHER])
    for client in streaming:
        await client.send(gateway.request(stream=True))
        await client.head()
    for _ in range(40):  # more than are kept for them
        for path, status in (("/health", 200), ("/ready", 200), ("/v1/models", 503)):
            probe = await connect_from(gateway, "127.0.0.1")
            await probe.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            answer = await probe.answer()
            assert (answer.status, answer.headers["connection"]) == (status, "close")
            if status == 503:
                assert answer.error["code"] == "connections_full"
                assert "TOLLKEEPER_MAX_CONNECTIONS" in answer.error["message"]
    assert gateway.gateway.admission.in_flight == 2
    for client in streaming:
        assert b"data: {" in await anext(client.pieces())


async def test_silent_connections_cannot_take_what_is_kept_for_health_checks(limited, eventually):
    gateway = await limited({"tokens": 400, "gap_ms": 10}, max_connections=1)
    (streaming,) = await open_in_order(gateway, eventually, [ANOTHER])
    await streaming.send(gateway.request(stream=True))
    await streaming.head()
    silent = [await connect_from(gateway, STRANGER) for _ in range(60)]
    probe = await connect_from(gateway, "127.0.0.1")
    await probe.send(HEALTH)
    assert (await probe.answer()).status == 200
    assert [await is_open(client) for client in silent].count(True) <= 16


async def test_trusted_proxies_have_no_share_and_never_give_way(limited, eventually):
    gateway = await limited(max_connections=6, max_connections_per_address=1, trusted_proxies=f"{STRANGER}/32")
    proxied = await open_in_order(gateway, eventually, [STRANGER] * 4)
    others = await open_in_order(gateway, eventually, [ANOTHER, "127.0.0.4"])
    newest = await connect_from(gateway, "127.0.0.5")
    assert await others[0].is_closed()
    assert [await is_open(client) for client in (*proxied, others[1], newest)] == [True] * 6


async def test_without_a_setting_the_share_is_a_quarter(limited, eventually):
    gateway = await limited(max_connections=12)
    held = await open_in_order(gateway, eventually, [STRANGER] * 3)
    await connect_from(gateway, STRANGER)
    assert await held[0].is_closed()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:8080", 403),
        ("evil", 403),
        ("localhost", 200),
        ("Localhost.:8080", 200),
        ("app.localhost", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("10.1.2.3", 200),
        ("LLM.example:443", 200),
    ],
)
async def test_other_names_are_refused_on_a_loopback_port(limited, host, status):
    gateway = await limited(allowed_hosts="llm.example")
    client = await gateway.connect()
    for path in ("/health", "/ready", "/metrics", "/v1/models"):
        if status == 403:
            client = await gateway.connect()
        await client.send(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
        answer = await client.answer()
        assert answer.status == status
        if status == 403:
            assert answer.error["code"] == "host_not_allowed" and "TOLLKEEPER_ALLOWED_HOSTS" in answer.error["message"]
            assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(("names", "status"), [("", 200), ("llm.example", 403)])
async def test_on_other_addresses_names_are_checked_if_they_are_set(limited, names, status):
    gateway = await limited(host="0.0.0.0", allowed_hosts=names)
    answer = await gateway.ask(b"GET /health HTTP/1.1\r\nHost: gateway.example\r\n\r\n")
    assert answer.status == status
