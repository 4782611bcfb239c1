"""A gateway that does not read costs bounded memory, loses its own requests, and harms no other."""

import asyncio
import threading

from bench.scripted_engine import Script
from contracts.engine.wire import WIRE_VERSION, Attach, Finished, Hello
from tests.backends.engine.host_client import HostClient, RunningHost, StartHost, make_submit

BUFFER = 1 << 16
ENDLESS = 10**9


async def deaf_client(running: RunningHost, requests: int) -> HostClient:
    """Ask for much and read nothing."""
    deaf = await running.raw(read=False)
    deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]  # what a stream reader does when it is full
    deaf.send(Attach(version=WIRE_VERSION, gateway="deaf"))
    for number in range(requests):
        deaf.send(make_submit(1000 + number, [1], model="scripted", max_tokens=ENDLESS))
    return deaf


async def until(condition, seconds: float = 120.0) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)


async def test_a_gateway_that_does_not_read_loses_its_requests_by_name(start_host: StartHost) -> None:
    running = await start_host("scripted", engine_send_buffer_bytes=BUFFER, script=Script(step_seconds=0.001))
    good = await (await running.client("good")).ready("scripted")
    mine = make_submit(1, [1], model="scripted", max_tokens=ENDLESS)
    good.send(mine)
    deaf = await deaf_client(running, 8)
    await until(lambda: running.host.counters.choked == 8)
    await until(lambda: running.host.requests == 1)
    count = len(good.token_ids(mine.request_id))
    await good.until(lambda: len(good.token_ids(mine.request_id)) > count)
    deaf.reader._transport.resume_reading()  # type: ignore[attr-defined]  # see above
    deaf.start_reading()
    await deaf.until(lambda: len(deaf.of(Finished)) == 8)
    assert {end.error_code for end in deaf.of(Finished)} == {"gateway_too_slow"}
    for end in deaf.of(Finished):
        # Some of what was made was thrown away, and is counted as used all the same.
        assert (end.usage.output_text or 0) >= len(deaf.token_ids(end.request_id)) > 0
    again = make_submit(5, [1], model="scripted")
    assert (await deaf.run(again)).finish_reason == "length"


async def test_what_waits_for_a_deaf_gateway_is_bounded(start_host: StartHost) -> None:
    running = await start_host("scripted", engine_send_buffer_bytes=BUFFER)
    good = await (await running.client("good")).ready("scripted")
    await deaf_client(running, 200)
    await until(lambda: running.host.counters.choked > 0)
    await until(lambda: running.host.requests == 0)
    (connection,) = [one for one in running.host._connections if one.is_choked]
    assert connection._transport is not None
    held = connection._transport.get_write_buffer_size()
    # One step's output and the ends of its requests may come on top.
    assert BUFFER < held < BUFFER + 200 * 2 * 400
    assert (await good.run(make_submit(1, [1], model="scripted"))).finish_reason == "length"


async def test_a_deaf_gateway_learns_of_models_when_it_reads_again(start_host: StartHost) -> None:
    running = await start_host("scripted", engine_send_buffer_bytes=BUFFER)
    good = await (await running.client("good")).ready("scripted")
    deaf = await deaf_client(running, 8)
    await until(lambda: running.host.counters.choked == 8)
    assert (await good.call("load", "second", "scripted")).ok
    deaf.reader._transport.resume_reading()  # type: ignore[attr-defined]  # see above
    deaf.start_reading()
    await deaf.until(lambda: bool(deaf.of(Hello)) and len(deaf.of(Hello)[-1].models) == 2)


async def test_a_deaf_gateway_that_vanishes_leaves_nothing(start_host: StartHost) -> None:
    release = threading.Event()
    release.set()
    running = await start_host("scripted", engine_send_buffer_bytes=BUFFER, script=Script(block_step=release))
    await (await running.client("good")).ready("scripted")
    deaf = await deaf_client(running, 8)
    await until(lambda: running.host.counters.choked == 8)
    deaf.writer.transport.abort()
    await until(lambda: running.host.connections == 1)
    assert running.host.requests == 0
