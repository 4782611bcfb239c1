"""Targets that stand for what is found: endpoints join and leave while the gateway serves."""

import asyncio
import os

import pytest
import yaml

from contracts.pricing.prices import PriceBook
from contracts.serving.configuration import PoolSpec, Snapshot, TargetSpec
from contracts.serving.failures import BreakerPolicy, FailurePolicy
from gateway.request.clock import Clock
from gateway.routing.health.breaker import CallPermission
from gateway.routing.health.health_book import HealthBook
from tests.backends.endpoints.api_server import ApiServer, inference_pool_of, pod_of, slice_of


def discovering(kit, where, **settings):
    target = kit.http_target("http://{address}/v1", name="vllm")
    target["settings"] = {"discover": where, "slow_start_seconds": 0, **settings}
    return kit.configuration(("mock", [target]))


async def served(gateway, count=6):
    return [(await gateway.chat(model="mock")).status for _ in range(count)]


async def test_endpoints_of_a_file_join_and_leave_without_a_restart(
    start_gateway, kit, new_upstream, tmp_path, eventually
):
    one, two = await new_upstream(), await new_upstream()
    for upstream in (one, two):
        upstream.always(upstream.whole(upstream.completion()))
    file = tmp_path / "endpoints"

    def write(*upstreams):
        (tmp_path / "draft").write_text("".join(f"127.0.0.1:{upstream.port}\n" for upstream in upstreams))
        os.replace(tmp_path / "draft", file)

    write(one)
    gateway = await start_gateway(discovering(kit, f"file:{file}"))
    assert await served(gateway) == [200] * 6
    assert (len(one.requests), len(two.requests)) == (6, 0)
    write(one, two)
    await eventually(lambda: len(gateway.gateway.directory.snapshot.pools["mock"].targets) == 2, 5.0)
    assert await served(gateway) == [200] * 6
    assert (len(one.requests), len(two.requests)) == (9, 3), "they take turns"
    write(two)
    await eventually(lambda: len(gateway.gateway.directory.snapshot.pools["mock"].targets) == 1, 5.0)
    assert await served(gateway) == [200] * 6
    assert (len(one.requests), len(two.requests)) == (9, 9), "nothing more goes to what is gone"
    assert {record.replica for record in gateway.requests()} == {
        f"vllm@127.0.0.1:{one.port}",
        f"vllm@127.0.0.1:{two.port}",
    }


async def test_a_stream_of_an_endpoint_that_leaves_finishes(start_gateway, kit, new_upstream, tmp_path, eventually):
    one, two = await new_upstream(), await new_upstream()
    one.always(
        one.stream_head(),
        *[step for _ in range(20) for step in (one.piece(one.chunk("tok ")), 0.03)],
        one.piece(one.chunk(finish="stop")) + one.piece(one.event(b"[DONE]")) + one.END,
    )
    two.always(two.whole(two.completion()))
    file = tmp_path / "endpoints"
    file.write_text(f"127.0.0.1:{one.port}\n")
    gateway = await start_gateway(discovering(kit, f"file:{file}"))
    client = await gateway.connect()
    await client.send(gateway.request(model="mock", stream=True))
    await client.head()
    file.write_text(f"127.0.0.1:{two.port}\n")
    name = f"vllm@127.0.0.1:{two.port}"
    await eventually(lambda: gateway.gateway.directory.snapshot.pools["mock"].targets[0].id == name, 5.0)
    assert (await gateway.chat(model="mock")).status == 200
    body = b"".join([piece async for piece in client.pieces()])
    assert body.count(b"tok ") == 20 and body.endswith(b"data: [DONE]\n\n")


async def test_a_service_without_endpoints_is_refused_until_one_is_ready(start_gateway, kit, upstream, eventually):
    upstream.always(upstream.whole(upstream.completion()))
    server = ApiServer()
    try:
        gateway = await start_gateway(discovering(kit, "kubernetes:models/vllm:http"), kubernetes_url=server.url)
        assert (await gateway.chat(model="mock")).status == 502
        server.put(slice_of("one", "127.0.0.1", port=upstream.port))
        await eventually(lambda: gateway.gateway.targets.broken == {}, 5.0)
        assert await served(gateway, 2) == [200, 200]
        server.delete("one")
        await eventually(lambda: gateway.gateway.targets.broken != {}, 5.0)
        assert (await gateway.chat(model="mock")).status == 502
        assert len(upstream.requests) == 2
    finally:
        await asyncio.to_thread(server.close)


async def test_pods_of_an_inference_pool_serve_and_their_own_metrics_are_read(start_gateway, kit, upstream, eventually):
    upstream.always(upstream.whole(upstream.completion()))
    server = ApiServer()
    try:
        server.put(inference_pool_of("llama", upstream.port, app="llama"))
        server.put(pod_of("one", "127.0.0.1", app="llama"))
        where = discovering(kit, "inferencepool:models/llama", metrics_url="http://{address}/metrics")
        gateway = await start_gateway(where, kubernetes_url=server.url)
        assert await served(gateway, 2) == [200, 200]
        (target,) = gateway.gateway.directory.snapshot.pools["mock"].targets
        assert target.settings["metrics_url"] == f"http://127.0.0.1:{upstream.port}/metrics"
        server.delete("one")
        await eventually(lambda: gateway.gateway.targets.broken != {}, 5.0)
        assert (await gateway.chat(model="mock")).status == 502
    finally:
        await asyncio.to_thread(server.close)


async def test_the_file_of_the_gateway_may_change_beside_the_endpoints(
    start_gateway, kit, upstream, tmp_path, eventually
):
    upstream.always(upstream.whole(upstream.completion()))
    file = tmp_path / "endpoints"
    file.write_text(f"127.0.0.1:{upstream.port}\n")
    gateway = await start_gateway(discovering(kit, f"file:{file}"))

    config = {**discovering(kit, f"file:{file}"), "models": [{"name": "twin", "pool": "mock"}]}
    (tmp_path / "gateway0.yaml").write_text(yaml.safe_dump(config))
    gateway.gateway.reload()
    await eventually(lambda: "twin" in gateway.gateway.directory.snapshot.models, 5.0)
    assert (await gateway.chat(model="twin")).status == 200


def pool_of(*targets: str, seconds: float) -> Snapshot:
    specs = tuple(TargetSpec(name, "pool", "scripted", slow_start_seconds=seconds) for name in targets)
    policy = FailurePolicy(breaker=BreakerPolicy())
    pool = PoolSpec("pool", specs, failures=policy)
    return Snapshot(1, {}, {}, {"pool": pool}, PriceBook(()))


@pytest.mark.parametrize(
    ("seconds", "after_seconds", "chance", "leave"),
    [
        (10.0, 0.0, 0.0, CallPermission.RATHER_NOT),
        (10.0, 5.0, 0.49, CallPermission.YES),
        (10.0, 5.0, 0.51, CallPermission.RATHER_NOT),
        (10.0, 10.0, 1.0, CallPermission.YES),
        (0.0, 0.0, 1.0, CallPermission.YES),
    ],
)
def test_the_share_of_one_that_joins_grows_to_the_whole(seconds, after_seconds, chance, leave):
    now = [0]
    book = HealthBook(Clock(wall_ns=lambda: now[0], monotonic_ns=lambda: now[0]), lambda: chance)
    book.sync(pool_of("old", seconds=seconds))
    old = next(iter(book.targets)).breaker
    assert old is not None and old.ask(0) is CallPermission.YES, "what was there at the start is warm or all are cold"
    book.sync(pool_of("old", "new", seconds=seconds))
    new = {health.id: health for health in book.targets}["new"]
    assert new.breaker is not None
    assert new.is_away == bool(seconds)
    now[0] = round(after_seconds * 1e9)
    assert new.breaker.ask(now[0]) is leave
