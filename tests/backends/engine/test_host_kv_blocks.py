"""What a host's cache holds is told when asked, under names that the gateway works out by itself, apart by tenant."""

import asyncio
import random

from algorithms.routing.block_map import KEY_MASK
from algorithms.routing.fleet import Fleet
from algorithms.routing.policies.table import policy_named
from algorithms.routing.policy_input import RoutingRequest
from backends.llm.host.engine_hosts import EngineHosts
from backends.llm.host.host_connection import Taking
from contracts.engine.block_keys import block_hashes
from contracts.engine.wire import Hello, KvBlocks, KvEvents
from contracts.recording.records import KvRecord, decode_record
from gateway.routing.replicas.cache_mirror import CacheMirror
from tests.backends.engine.host_client import StartHost, make_submit

PROMPT = list(range(2, 52))  # three blocks and a rest


async def test_blocks_have_the_names_that_the_gateway_works_out_and_no_other_tenant_s(start_host: StartHost) -> None:
    client = await (await (await start_host("tiny")).client()).ready()
    await client.run(make_submit(1, PROMPT, max_tokens=1, cache_salt="salt of acme"))
    answer = await client.call("kv_blocks", "tiny")
    [blocks] = client.of(KvBlocks)
    assert (answer.ok, answer.facts, blocks.is_last, blocks.block_size) == (True, {"frames": 1}, True, 16)
    assert set(blocks.block_hashes) == set(block_hashes(PROMPT, 16, "salt of acme"))
    assert not set(blocks.block_hashes) & set(block_hashes(PROMPT, 16, "salt of other"))
    assert client.of(Hello)[0].tells_blocks


async def test_the_sequence_told_is_that_of_the_next_event(start_host: StartHost) -> None:
    client = await (await (await start_host("tiny")).client()).ready()
    await client.run(make_submit(1, PROMPT, max_tokens=1))
    await client.call("kv_blocks", "tiny")
    [blocks] = client.of(KvBlocks)
    await client.run(make_submit(2, PROMPT[::-1], max_tokens=1))
    await client.until(lambda: any(one.sequence >= blocks.sequence for one in events(client)))
    later = [one for one in events(client) if one.sequence >= blocks.sequence]
    assert later[0].sequence == blocks.sequence and later[0].engine == blocks.engine
    assert set(later[0].block_hashes) <= set(block_hashes(PROMPT[::-1], 16))


def events(client) -> list[KvRecord]:
    records = [decode_record(packed) for message in client.of(KvEvents) for packed in message.records]
    return [record for record in records if isinstance(record, KvRecord)]


async def test_an_engine_that_cannot_say_refuses_by_name(start_host: StartHost) -> None:
    client = await (await (await start_host("scripted")).client()).ready("scripted")
    answer = await client.call("kv_blocks", "scripted")
    assert (answer.ok, answer.error_code) == (False, "unsupported_call")
    assert not client.of(KvBlocks)


async def test_a_gateway_s_mirror_follows_a_real_cache(start_host: StartHost) -> None:
    running = await start_host("tiny")
    asker = await (await running.client()).ready()
    await asker.run(make_submit(1, PROMPT, max_tokens=1, cache_salt="s"))
    mirror, url = CacheMirror(), f"unix://{running.path}"
    fleet = Fleet(policy_named("cost", random.Random(0).random))
    fleet.follow([("r", 1)])
    mirror.follow(fleet, {"r": (url, "tiny")})
    hosts = EngineHosts(Taking("second", kv=mirror))
    hosts.join(url)

    def cached(prompt: list[int]) -> int:
        keys = [one & KEY_MASK for one in block_hashes(prompt, 16, "s")]
        return fleet.view(RoutingRequest(len(prompt), keys, 16), 1).cached(0)

    try:
        async with asyncio.timeout(10):
            while cached(PROMPT) != 48:  # held before the mirror began
                await asyncio.sleep(0.01)
            assert fleet.replicas[0].is_exact
            await asker.run(make_submit(2, PROMPT[::-1], max_tokens=1, cache_salt="s"))
            while cached(PROMPT[::-1]) != 48:  # by events
                await asyncio.sleep(0.01)
    finally:
        await hosts.leave(url)
    assert cached(PROMPT) == 0 and not fleet.replicas[0].is_exact  # gone with the host
