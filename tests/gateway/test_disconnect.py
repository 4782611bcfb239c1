"""A client that leaves: generation stops within 100 ms, and what was generated is on the record."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest

from contracts.metering.gaps import unpack_gaps

WITHIN_SECONDS = 0.1


async def leave(client, how: str) -> None:
    if how == "half-close":
        client.writer.write_eof()
    else:
        getattr(client, how)()


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_scripted_call_ends_within_100_ms(start_gateway, kit, eventually, how, streamed):
    script = kit.scripted(tokens=1000, gap_ms=5)
    gateway = await start_gateway(kit.configuration(("scripted-1", [script])))
    target = gateway.target("scripted-1", "s1")
    client = await gateway.connect()
    await client.send(gateway.request(stream=streamed))
    if streamed:
        await client.head()
        pieces = client.pieces()
        for _ in range(5):
            await anext(pieces)
    await eventually(lambda: target.running == 1)
    await asyncio.sleep(0.03)
    await leave(client, how)
    await eventually(lambda: target.running == 0, WITHIN_SECONDS)
    await eventually(lambda: gateway.requests(), WITHIN_SECONDS)
    [record] = gateway.requests()
    assert (record.outcome, record.status, record.error_code) == ("cancelled", 499, "client_closed_request")
    assert 3 <= record.usage.output_tokens < 100 and record.usage.input_tokens == 3
    assert len(unpack_gaps(record.gaps)) == record.usage.output_tokens - 1
    assert record.cost_pico_usd == 3 * 1_000_000 + record.usage.output_tokens * 2_000_000
    assert gateway.gateway.admission.in_flight == 0


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_upstream_connection_is_closed_within_100_ms(start_gateway, kit, upstream, eventually, how, streamed):
    events = [upstream.chunk("tok ") for _ in range(3)]
    head = upstream.stream_head() + b"".join(map(upstream.piece, events))
    upstream.always(head, upstream.STALL) if streamed else upstream.always(upstream.STALL)
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    client = await gateway.connect()
    await client.send(gateway.request(model="mock", stream=streamed))
    await eventually(lambda: upstream.requests)
    if streamed:
        await client.head()
        pieces = client.pieces()
        for _ in range(3):
            await anext(pieces)
    began = asyncio.get_running_loop().time()
    await leave(client, how)
    await eventually(lambda: upstream.lost_at, 1.0)
    assert upstream.lost_at[0] - began < WITHIN_SECONDS
    await eventually(lambda: gateway.requests())
    [record] = gateway.requests()
    assert record.outcome == "cancelled"
    if streamed:
        assert (record.usage.output_tokens, len(unpack_gaps(record.gaps)), record.count_method) == (3, 2, "estimate")
        assert record.cost_pico_usd is not None
    else:
        assert (record.usage.output_tokens, record.count_method) == (0, "estimate")  # its input, as far as is known
        assert 0 < record.cost_pico_usd == record.charged_pico_usd


async def test_a_report_that_came_before_the_client_left_is_what_is_billed(start_gateway, kit, upstream, eventually):
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    upstream.always(
        upstream.stream_head() + upstream.piece(upstream.chunk("several tokens", usage=usage)), upstream.STALL
    )
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    client = await gateway.connect()
    await client.send(gateway.request(model="mock", stream=True))
    await client.head()
    await anext(client.pieces())
    client.close()
    await eventually(lambda: gateway.requests())
    [record] = gateway.requests()
    assert (record.outcome, record.count_method) == ("cancelled", "reported")
    assert (record.usage.input_tokens, record.usage.output_tokens) == (11, 7)


@contextlib.contextmanager
def crowded_port() -> Iterator[int]:
    """A port of this machine whose queue is full: who connects neither gets through nor is refused."""
    with contextlib.ExitStack() as open_sockets:
        server = open_sockets.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(8):
            waiting = open_sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


async def test_a_client_that_leaves_while_the_upstream_is_being_connected_leaves_a_record(
    start_gateway, kit, eventually
):
    with crowded_port() as port:
        target = kit.http_target(f"http://127.0.0.1:{port}/v1", timeouts={"connect": 30})
        gateway = await start_gateway(kit.configuration(("mock", [target])))
        client = await gateway.connect()
        await client.send(gateway.request(model="mock"))
        await eventually(lambda: gateway.gateway.admission.in_flight == 1)
        await asyncio.sleep(0.05)
        assert gateway.gateway.admission.in_flight == 1, "the upstream answered: nothing was being connected"
        client.close()
        await eventually(lambda: gateway.gateway.admission.in_flight == 0)
        await eventually(lambda: gateway.requests())


async def test_a_client_that_leaves_after_its_answer_is_no_cancellation(gateway):
    for streamed in (False, True):
        client = await gateway.connect()
        await client.send(gateway.request(stream=streamed))
        await client.answer()
        client.reset()
    await asyncio.sleep(0.02)
    assert [record.outcome for record in gateway.requests()] == ["ok", "ok"]


async def test_a_hundred_clients_that_leave_at_once_free_everything(start_gateway, kit, eventually):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted(tokens=1000, gap_ms=5)])))
    clients = [await gateway.connect() for _ in range(100)]
    for number, client in enumerate(clients):
        await client.send(gateway.request(stream=number % 2 == 0))
    target = gateway.target("scripted-1", "s1")
    await eventually(lambda: target.running == 100)
    for client in clients:
        client.reset()
    await eventually(lambda: target.running == 0, 1.0)
    await eventually(lambda: len(gateway.requests()) == 100)
    assert gateway.gateway.admission.in_flight == 0
    assert gateway.gateway.health()["connections"] == 0
