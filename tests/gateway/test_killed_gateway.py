"""`kill -9` of a gateway with requests in progress: after the next start each that was sent has one record."""

import asyncio
import contextlib
import urllib.request

import pytest

from backends.segment_log.slot_table import SlotTable
from bench.fleet.gateway import GatewayProcess
from bench.fleet.redis_server import RedisServer


@pytest.fixture
async def start(tmp_path):
    started = []

    async def begin(config, redis_url=""):
        gateway = GatewayProcess("gw", tmp_path, config, redis_url)
        started.append(gateway)
        await gateway.start()
        return gateway

    yield begin
    for gateway in started:
        gateway.kill()


async def ask(kit, port: int, *, until: bytes, headers: str = "", **fields):
    """Send a request on a connection of its own; return it once `until` has come of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = kit.request(**fields)
    if headers:
        request = request.replace(b"\r\n", f"\r\n{headers}\r\n".encode(), 1)
    writer.write(request)
    if until:
        await asyncio.wait_for(reader.readuntil(until), 20)
    return reader, writer


def close(*connections) -> None:
    for _, writer in connections:
        writer.close()


def open_entries(tmp_path) -> int:
    table = SlotTable(tmp_path / "gw" / "sent-requests")
    try:
        return table.used
    finally:
        table.close()


async def test_what_was_with_a_model_server_has_a_record_after_the_next_start(start, kit, upstream, tmp_path):
    upstream.always(upstream.STALL)
    gateway = await start(kit.configuration(("m", [kit.http_target(upstream.url)])))
    trace = "traceparent: 00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    asked = [("", False), ("", True), ("x-tollkeeper-tags: job=7", True), (trace, False)]
    connections = []
    for number, (headers, streamed) in enumerate(asked, start=1):
        fields = {"model": "m", "stream": streamed, "max_tokens": 90 + number}
        connections.append(await ask(kit, gateway.port, until=b"", headers=headers, **fields))
        async with asyncio.timeout(20):
            while len(upstream.requests) < number:
                await asyncio.sleep(0.02)
    gateway.kill()
    close(*connections)
    await gateway.start()
    await gateway.stop()
    records = {record.request_id.hex(): record for record in gateway.records()}
    assert len(records) == len(gateway.records()) == len(asked)
    for number, (headers, streamed) in enumerate(asked, start=1):
        found = records[upstream.requests[number - 1].headers["x-request-id"].replace("-", "")]
        assert (found.outcome, found.error_code, found.stream) == ("error", "lost_in_crash", streamed)
        assert found.max_tokens == 90 + number
        who = found.who
        assert (who.tenant, who.team, who.project, who.key_id) == ("acme", "core", "apollo", "key_1")
        assert who.tags == ({"job": "7"} if "tags" in headers else {})
        assert found.trace_id == (b"\xaa" * 16 if "trace" in headers else b"")
        assert (found.model, found.pool, found.replica, found.provider) == ("m", "m", "u1", "openai_http")
        assert found.cost_pico_usd and found.count_method == "estimate"
    assert open_entries(tmp_path) == 0


async def test_output_that_had_passed_is_paid(start, kit):
    gateway = await start(kit.configuration(("scripted-1", [kit.scripted(tokens=4000, gap_ms=5)])))
    connection = await ask(kit, gateway.port, until=b"\r\n\r\n", stream=True)
    await asyncio.sleep(1.0)
    gateway.kill()
    close(connection)
    await gateway.start()
    gateway.kill()
    [found] = gateway.records()
    assert found.usage.output_tokens and found.duration_ns > 500_000_000
    assert found.cost_pico_usd == found.usage.input_tokens * 1_000_000 + found.usage.output_tokens * 2_000_000


@pytest.mark.drill
async def test_killed_twice_in_a_row_there_is_still_one_record_each(start, kit):
    gateway = await start(kit.configuration(("scripted-1", [kit.scripted(tokens=4000, gap_ms=20)])))
    ids = []
    for _ in range(2):
        connection = await ask(kit, gateway.port, until=b"\r\n\r\n", stream=True)
        gateway.kill()
        close(connection)
        await gateway.start()
        gateway.kill()
        await gateway.start()
        ids = [record.request_id for record in await records_of(gateway)]
    assert len(ids) == len(set(ids)) == 2


async def records_of(gateway):
    gateway.kill()
    found = gateway.records()
    await gateway.start()
    return found


async def test_a_request_that_waits_in_the_queue_was_not_sent_and_has_none(start, kit):
    config = kit.configuration(("scripted-1", [kit.scripted(tokens=4000, gap_ms=20)]))
    config["pools"][0]["queue"] = {"max_in_flight": 1}
    gateway = await start(config)
    first = await ask(kit, gateway.port, until=b"\r\n\r\n", stream=True)
    second = await ask(kit, gateway.port, until=b"", stream=True)
    await asyncio.sleep(0.5)
    gateway.kill()
    close(first, second)
    await gateway.start()
    gateway.kill()
    assert [record.error_code for record in gateway.records()] == ["lost_in_crash"]


async def test_a_clean_stop_leaves_no_entry_behind(start, kit, tmp_path):
    gateway = await start(kit.configuration(("scripted-1", [kit.scripted(tokens=30, gap_ms=10)])))
    connections = [await ask(kit, gateway.port, until=b"\r\n\r\n", stream=True) for _ in range(4)]
    await gateway.stop()
    close(*connections)
    assert open_entries(tmp_path) == 0
    assert {record.error_code for record in gateway.records()} <= {"", "client_closed_request"}
    assert len(gateway.records()) == 4


async def test_what_ends_leaves_no_entry(start, kit, upstream, tmp_path):
    """Answered, failed, tried elsewhere, refused, left by its client: on both paths."""
    chat = upstream.whole({
        "id": "x", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    })  # fmt: skip
    config = kit.configuration(
        ("m", [kit.http_target(upstream.url), kit.http_target(upstream.url, "u2")]),
        ("gone", [kit.http_target("http://127.0.0.1:9/v1")]),
    )
    gateway = await start(config)
    for headers in ("", "x-tollkeeper-tags: job=7"):
        upstream.always(chat)
        for _ in range(3):
            close(await ask(kit, gateway.port, until=b"}]", headers=headers, model="m"))
        upstream.then(upstream.CLOSE)
        close(await ask(kit, gateway.port, until=b"\r\n\r\n", headers=headers, model="m"))
        upstream.then(upstream.whole({"error": {"message": "no"}}, 400))
        close(await ask(kit, gateway.port, until=b"\r\n\r\n", headers=headers, model="m"))
        close(await ask(kit, gateway.port, until=b"\r\n\r\n", headers=headers, model="gone"))
        upstream.then(upstream.STALL)
        close(await ask(kit, gateway.port, until=b"", headers=headers, model="m"))
    with contextlib.suppress(TimeoutError):
        await gateway.is_quiet(10)
    gateway.kill()
    assert open_entries(tmp_path) == 0
    await gateway.start()
    gateway.kill()
    assert all(record.error_code != "lost_in_crash" for record in gateway.records())


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.drill
async def test_a_budget_keeps_what_the_records_were_charged(start, kit, upstream, is_shared):
    if is_shared and not RedisServer.is_installed():
        pytest.skip("redis-server is not installed")
    upstream.always(upstream.STALL)
    budget = {"id": "b", "tenant": "acme", "level": "tenant", "period": "total", "amount_usd": "1"}
    config = kit.configuration(("m", [kit.http_target(upstream.url)]), budgets=[budget])
    with contextlib.ExitStack() as stack:
        gateway = await start(config, stack.enter_context(RedisServer()).url if is_shared else "")
        for kills in (1, 2):
            connections = [
                await ask(kit, gateway.port, until=b"", model="m", headers=headers)
                for headers in ("", "x-tollkeeper-tags: a=b")
            ]
            async with asyncio.timeout(20):
                while len(upstream.requests) < 2 * kills:
                    await asyncio.sleep(0.02)
            gateway.kill()
            close(*connections)
            await gateway.start()
        await gateway.stop()  # what it holds in advance is given back
        await gateway.start()
        page = await asyncio.to_thread(metrics_of, gateway.port)
        gateway.kill()
    [line] = [line for line in page.splitlines() if line.startswith("tollkeeper_budget_used_ratio{")]
    charged = sum(record.charged_pico_usd for record in gateway.records())
    assert len(gateway.records()) == 4
    assert charged > 0 and round(float(line.split()[-1]) * 10**12) == charged


async def test_metrics_count_what_a_crash_ended(start, kit, upstream):
    upstream.always(upstream.STALL)
    gateway = await start(kit.configuration(("m", [kit.http_target(upstream.url)])))
    connection = await ask(kit, gateway.port, until=b"", model="m")
    async with asyncio.timeout(20):
        while not upstream.requests:
            await asyncio.sleep(0.02)
    gateway.kill()
    close(connection)
    await gateway.start()
    page = await asyncio.to_thread(metrics_of, gateway.port)
    counted = [line for line in page.splitlines() if line.startswith("tollkeeper_requests_total{")]
    assert [float(line.split()[-1]) for line in counted if 'outcome="error"' in line and 'status="500"' in line] == [1]


def metrics_of(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        return str(reply.read().decode())
