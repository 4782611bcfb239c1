"""The data plane behind TLS: certificates that change while it runs, clients that show one, slow handshakes, stops."""

import asyncio
import socket
import ssl
from functools import partial
from typing import Any

import openai
import pytest

from backends.network.tls import TlsFiles, client_tls
from contracts.errors import ConfigurationError
from tests.certificates import Authority
from tests.gateway.conftest import KEY, RawClient


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def issued(authority):
    return authority.issue("gateway")


@pytest.fixture
def secure(start_gateway, kit, authority, issued):
    """Start a gateway behind TLS."""

    async def start(script=None, **settings):
        config = kit.configuration(("scripted-1", [kit.scripted(**(script or {}))]))
        return await start_gateway(config, tls_certificate=issued.certificate, tls_key=issued.key, **settings)

    return start


async def connect(gateway, authority, shown=None) -> Any:
    """Connect as a client that trusts this authority and shows a certificate, or none."""
    files = TlsFiles(shown and shown.certificate, shown and shown.key, authority.path)
    opened = asyncio.open_connection("127.0.0.1", gateway.port, ssl=client_tls(files), limit=1 << 20)
    client = RawClient(*await opened)
    gateway._clients.append(client)
    return client


def serial_seen(client) -> int:
    return int(client.writer.get_extra_info("peercert")["serialNumber"], 16)


async def test_an_sdk_is_served_over_tls_streaming_and_not(secure, authority):
    gateway = await secure()
    http = openai.DefaultAsyncHttpxClient(verify=client_tls(TlsFiles(authorities=authority.path)), trust_env=False)
    url = f"https://127.0.0.1:{gateway.port}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0, http_client=http) as client:
        messages: Any = [{"role": "user", "content": "one two three"}]
        whole: Any = await client.chat.completions.create(model="scripted-1", messages=messages)
        stream: Any = await client.chat.completions.create(model="scripted-1", messages=messages, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    assert text == whole.choices[0].message.content
    assert gateway.gateway.health()["certificate"] == "current"


async def test_plain_http_on_the_secure_port_is_answered_by_nobody_and_harms_nobody(secure, authority):
    gateway = await secure()
    plain = await gateway.connect()
    await plain.send(gateway.request())
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await plain.answer()
    client = await connect(gateway, authority)
    await client.send(gateway.request())
    assert (await client.answer()).status == 200


async def test_a_stream_goes_on_while_the_certificate_is_renewed_and_new_clients_see_the_new_one(
    secure, authority, issued, eventually
):
    gateway = await secure({"tokens": 50, "gap_ms": 20})
    streaming = await connect(gateway, authority)
    await streaming.send(gateway.request(stream=True))
    await streaming.head()
    pieces = streaming.pieces()
    first = await anext(pieces)
    renewed = authority.issue("gateway")
    tls = gateway.gateway._tls
    await eventually(lambda: tls.reloads == 1, 3.0)  # without a handshake having asked for it
    fresh = await connect(gateway, authority)
    assert (serial_seen(streaming), serial_seen(fresh)) == (issued.serial, renewed.serial)
    body = first + b"".join([piece async for piece in pieces])
    assert body.endswith(b"data: [DONE]\n\n")
    await streaming.send(gateway.request(max_tokens=1))
    assert (await streaming.answer()).status == 200, "its connection stays open as well"


async def test_a_renewed_certificate_that_cannot_be_used_leaves_the_old_one_and_shows_as_degraded(
    secure, authority, issued, eventually, caplog, monkeypatch
):
    monkeypatch.setattr("gateway.wire.server._SWEEP_SECONDS", 0.05)
    gateway = await secure()
    other = authority.issue("other")
    issued.key.write_bytes(other.key.read_bytes())
    await eventually(lambda: gateway.gateway.health()["degraded"] == ["certificate"], 3.0)
    client = await connect(gateway, authority)
    assert serial_seen(client) == issued.serial
    await client.send(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
    ready = (await client.answer()).json
    assert ready["status"] == "ready" and "the key is not the certificate's" in ready["certificate"]
    assert sum("certificate not reloaded" in record.message for record in caplog.records) == 1
    issued.certificate.write_bytes(other.certificate.read_bytes())
    await eventually(lambda: gateway.gateway.health()["degraded"] == [], 3.0)
    assert serial_seen(await connect(gateway, authority)) == other.serial


async def test_a_certificate_that_cannot_be_used_stops_the_start(secure, issued):
    issued.certificate.write_text("nothing")
    with pytest.raises(ConfigurationError, match=r"gateway\.pem and .*gateway\.key cannot be used for TLS"):
        await secure()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tls_certificate": "a.pem"}, "TOLLKEEPER_TLS_KEY"),
        ({"tls_key": "a.key"}, "TOLLKEEPER_TLS_CERTIFICATE"),
        ({"tls_client_ca": "a.pem"}, "of no use without TOLLKEEPER_TLS_CERTIFICATE"),
    ],
)
async def test_half_of_the_settings_are_refused(start_gateway, kit, settings, words):
    with pytest.raises(ValueError, match=words):
        await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])), **settings)


async def test_only_clients_with_a_certificate_are_served_and_anyone_may_ask_how_the_gateway_is(
    secure, authority, tmp_path
):
    gateway = await secure(tls_client_ca=authority.path)
    known = await connect(gateway, authority, authority.issue("client", "app.example"))
    await known.send(gateway.request())
    assert (await known.answer()).status == 200
    unknown = await connect(gateway, authority)
    await unknown.send(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await unknown.answer()).status == 200
    await unknown.send(gateway.request())
    refused = await unknown.answer()
    assert (refused.status, refused.error["code"]) == (403, "client_certificate")
    assert len(gateway.requests()) == 1


async def test_a_client_whose_certificate_another_authority_signed_gets_no_further_than_the_handshake(
    secure, authority, tmp_path, eventually
):
    gateway = await secure(tls_client_ca=authority.path)
    stranger = Authority(tmp_path, "strangers").issue("stranger", "app.example")
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        client = await connect(gateway, authority, stranger)
        await client.send(gateway.request())
        await client.answer()
    await eventually(lambda: gateway.gateway.health()["connections"] == 0)


@pytest.mark.alone
async def test_a_handshake_that_does_not_end_is_cut_off_in_its_time(secure):
    gateway = await secure(tls_handshake_seconds=0.3)
    began = asyncio.get_running_loop().time()
    silent, half = await gateway.connect(), await gateway.connect()
    await half.send(b"\x16\x03\x01\x02\x00\x01\x00")  # how a hello begins
    assert await silent.is_closed() and await half.is_closed()
    assert 0.25 <= asyncio.get_running_loop().time() - began < 2


async def test_an_unfinished_handshake_counts_as_a_connection_and_the_oldest_gives_way(secure, authority, eventually):
    gateway = await secure(max_connections=3, max_connections_per_address=3)
    waiting = []
    for number in range(3):
        waiting.append(await gateway.connect())
        await eventually(lambda number=number: gateway.gateway.health()["connections"] == number + 1)
    client = await connect(gateway, authority)
    assert await waiting[0].is_closed()
    await client.send(gateway.request())
    assert (await client.answer()).status == 200
    assert gateway.gateway.health()["connections"] == 3
    for each in (*waiting, client):
        each.close()
    await eventually(lambda: gateway.gateway.health()["connections"] == 0)
    client = await connect(gateway, authority)
    await client.send(gateway.request())
    assert (await client.answer()).status == 200


async def test_handshakes_that_fail_hold_nothing(secure, authority, eventually):
    gateway = await secure(max_connections=50)
    for _ in range(60):
        plain = await gateway.connect()
        await plain.send(b"GET /health HTTP/1.1\r\n\r\n")
        plain.close()
        await eventually(lambda: gateway.gateway.health()["connections"] <= 1)
    client = await connect(gateway, authority)
    await client.send(gateway.request())
    assert (await client.answer()).status == 200


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_leaves_ends_its_call_within_100_ms(secure, authority, eventually, how, streamed):
    gateway = await secure({"tokens": 1000, "gap_ms": 5})
    target = gateway.target("scripted-1", "s1")
    client = await connect(gateway, authority)
    await client.send(gateway.request(stream=streamed))
    await eventually(lambda: target.running == 1)
    await asyncio.sleep(0.03)
    client.close() if how == "close" else client.writer.transport.abort()
    await eventually(lambda: target.running == 0, 0.1)
    await eventually(lambda: gateway.requests())
    assert gateway.requests()[0].outcome == "cancelled"


async def test_requests_may_be_pipelined_and_split_anywhere(secure, authority):
    gateway = await secure()
    client = await connect(gateway, authority)
    data = gateway.request(max_tokens=1) * 3
    for start in range(0, len(data), 7):
        await client.send(data[start : start + 7])
    for _ in range(3):
        assert (await client.answer()).status == 200


@pytest.mark.parametrize("size", [5_000, 2_000_000])
async def test_a_body_that_is_too_large_is_refused_and_the_client_can_read_why(secure, authority, size):
    gateway = await secure(max_body_bytes=4096)
    client = await connect(gateway, authority)
    sending = asyncio.create_task(client.send(gateway.request(b"x" * size)))
    answer = await asyncio.wait_for(client.answer(), 5)
    assert (answer.status, answer.error["code"]) == (413, "body_too_large")
    assert await client.is_closed()
    await asyncio.gather(sending, return_exceptions=True)


async def test_a_client_that_does_not_read_holds_the_model_back(secure, authority, eventually):
    gateway = await secure({"tokens": 1_000_000})
    client = await connect(gateway, authority)
    client.writer.transport.pause_reading()
    await client.send(gateway.request(stream=True))
    connections = gateway.gateway._server._connections
    await eventually(lambda: [one for one in connections if one._is_write_paused])
    [connection] = connections
    await asyncio.sleep(0.1)
    assert connection._transport.get_write_buffer_size() < 2_000_000 and not gateway.requests()
    client.writer.transport.abort()
    await eventually(lambda: gateway.requests())


async def test_the_answer_under_way_is_finished_at_a_stop_and_nothing_new_begins(secure, authority):
    gateway = await secure({"tokens": 30, "gap_ms": 10}, drain_seconds=5.0)
    busy, idle, kept = [await connect(gateway, authority) for _ in range(3)]
    half_open = await gateway.connect()
    await kept.send(gateway.request(max_tokens=5))
    await busy.send(gateway.request(stream=True))
    await busy.head()
    stopping = asyncio.create_task(gateway.gateway.stop())
    assert await idle.is_closed()
    assert (await kept.answer()).status == 200 and await kept.is_closed()
    body = b"".join([piece async for piece in busy.pieces()])
    assert body.endswith(b"data: [DONE]\n\n") and await busy.is_closed()
    for attempt in (gateway.connect, partial(connect, gateway, authority)):
        with pytest.raises(OSError):
            await attempt()
    await asyncio.wait_for(stopping, 3)
    half_open.close()


async def test_a_large_answer_is_flushed_before_a_stop_cuts_its_connection(
    start_gateway, kit, upstream, authority, issued, eventually
):
    upstream.always(upstream.whole(upstream.completion("x" * 16_000_000)))
    config = kit.configuration(("mock", [kit.http_target(upstream.url)]))
    gateway = await start_gateway(config, drain_seconds=10.0, tls_certificate=issued.certificate, tls_key=issued.key)
    client = await connect(gateway, authority)
    client.writer.transport.pause_reading()
    await client.send(gateway.request(model="mock"))
    await eventually(lambda: gateway.requests())
    stopping = asyncio.create_task(gateway.gateway.stop())
    await asyncio.sleep(0.05)
    client.writer.transport.resume_reading()
    answer = await asyncio.wait_for(client.answer(), 10)
    assert len(answer.json["choices"][0]["message"]["content"]) == 16_000_000
    await stopping


async def test_a_client_that_does_not_answer_the_end_of_tls_holds_a_stop_up_for_a_moment_only(secure, authority):
    gateway = await secure(drain_seconds=30.0)
    context = client_tls(TlsFiles(authorities=authority.path))

    def ask() -> ssl.SSLSocket:  # as blocking clients do, which look at an idle connection only when they use it again
        plain = socket.create_connection(("127.0.0.1", gateway.port))
        client = context.wrap_socket(plain, server_hostname="127.0.0.1")
        client.sendall(gateway.request(max_tokens=1))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        return client

    with await asyncio.to_thread(ask):
        await asyncio.wait_for(gateway.gateway.stop(), 10)
