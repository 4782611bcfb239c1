"""Autoscaling signals of pools of other inference servers: read over HTTP, by pool, unknown where none says it."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from backends.engine_metrics.gauges import ServerGauges
from backends.engine_metrics.scraper import Scrape
from contracts.serving.configuration import EMPTY_SNAPSHOT, PoolSpec, Snapshot, TargetSpec
from gateway.observability.metrics.exposition import render
from gateway.observability.metrics.pool_signals import WINDOW_SECONDS, FirstTokenTimes, pool_families
from tests.gateway.exposition_parser import Page

PLANNING = Path(__file__).parents[4] / "docs" / "planning.md"


def snapshot_of(**pools: dict[str, object]) -> Snapshot:
    return replace(
        EMPTY_SNAPSHOT,
        pools={
            name: PoolSpec(
                name,
                tuple(TargetSpec(one, name, "openai_http", settings={"metrics_url": url}) for one, url in urls.items()),
            )
            for name, urls in pools.items()
        },
    )


def page_of(snapshot: Snapshot, times: FirstTokenTimes, **gauges: ServerGauges | None) -> Page:
    scrapes = {name: Scrape(found, "", found is not None) for name, found in gauges.items()}
    body = b"".join(render(list(pool_families(snapshot, scrapes, times))))
    return Page(body)


def test_a_pool_s_queue_is_a_sum_and_its_cache_the_fullest_of_those_that_say_it() -> None:
    snapshot = snapshot_of(chat={"a": "u", "b": "u", "c": "u", "d": "u"}, silent={"e": "u"}, other={"f": "u"})
    found = page_of(
        snapshot,
        FirstTokenTimes(),
        a=ServerGauges("vllm", running=3, waiting=2, kv_usage=0.5),
        b=ServerGauges("sglang", running=1, waiting=5, kv_usage=0.75),
        c=ServerGauges("tgi", running=4, waiting=0),
        d=None,
        f=ServerGauges("tgi", running=0, waiting=0),
    )
    assert found.value("tollkeeper_pool_replicas", pool="chat") == 3
    assert found.value("tollkeeper_pool_queue_requests", pool="chat") == 7
    assert found.value("tollkeeper_pool_running_requests", pool="chat") == 8
    assert found.value("tollkeeper_pool_kv_usage_ratio", pool="chat") == 0.75
    assert found.labels("tollkeeper_pool_replicas") == [{"pool": "chat"}, {"pool": "other"}]
    assert found.labels("tollkeeper_pool_kv_usage_ratio") == [{"pool": "chat"}], "TGI does not say it"
    assert found.value("tollkeeper_pool_queue_requests", pool="other") == 0
    assert "tollkeeper_pool_ttft_seconds" not in found.metrics


def told(*stages: tuple[float, int]) -> dict[str, Scrape]:
    return {"a": Scrape(ServerGauges("vllm", first_token_stages=stages), "", True)}


def test_the_time_to_the_first_token_is_of_the_last_minute() -> None:
    times = FirstTokenTimes()
    times.note(told((100.0, 1000)), 0.0)
    assert times.mean("a") is None, "sums since the server's start say nothing of now"
    times.note(told((101.0, 1002)), 5.0)
    assert times.mean("a") == (0.5, 2)
    times.note(told((101.0, 1002)), 60.0)
    times.note(told((104.0, 1003)), 64.0)
    assert times.mean("a") == (4 / 3, 3), "a second before the window's end"
    times.note(told((104.0, 1003)), 5.0 + WINDOW_SECONDS)
    assert times.mean("a") == (3.0, 1)
    times.note(told((104.0, 1003)), 200.0)
    times.note(told((104.0, 1003)), 205.0)
    assert times.mean("a") is None, "nobody had a first token"


def test_a_server_that_started_anew_is_looked_at_from_then_on_and_one_that_left_is_forgotten() -> None:
    times = FirstTokenTimes()
    times.note(told((100.0, 1000)), 0.0)
    times.note(told((0.5, 1)), 5.0)
    assert times.mean("a") is None
    times.note(told((1.0, 2)), 10.0)
    assert times.mean("a") == (0.5, 1)
    times.note({"a": Scrape(None, "away")}, 15.0)
    assert times.mean("a") == (0.5, 1)
    times.note({}, 20.0)
    assert times.mean("a") is None


def test_stages_add_up_and_a_pool_s_mean_is_weighted_by_requests() -> None:
    times, snapshot = FirstTokenTimes(), snapshot_of(chat={"a": "u", "b": "u"})
    vllm, tgi = ServerGauges("vllm"), ServerGauges("tgi")
    for at, first, second in ((0.0, ((0.0, 0),), ((0.0, 0), (0.0, 0))), (5.0, ((3.0, 3),), ((1.0, 1), (2.0, 1)))):
        told = {"a": replace(vllm, first_token_stages=first), "b": replace(tgi, first_token_stages=second)}
        times.note({name: Scrape(gauges, "", True) for name, gauges in told.items()}, at)
    assert times.mean("a") == (1.0, 3) and times.mean("b") == (3.0, 1)
    assert page_of(snapshot, times, a=vllm, b=tgi).value("tollkeeper_pool_ttft_seconds", pool="chat") == 1.5


async def test_a_gateway_s_page_has_a_pool_s_signals(start_gateway, kit) -> None:
    said = (
        b"vllm:num_requests_running 3\nvllm:num_requests_waiting 4\nvllm:kv_cache_usage_perc 0.9\n"
        b"vllm:time_to_first_token_seconds_sum %d\nvllm:time_to_first_token_seconds_count %d\n"
    )
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1
        body = said % (2 * asked, asked)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    target = kit.http_target(f"{origin}/v1")
    target["settings"] = {"metrics_url": f"{origin}/metrics"}
    gateway = (await start_gateway(kit.configuration(("m", [target])))).gateway
    assert gateway._metrics is not None
    page = gateway._metrics._endpoint._page
    try:
        await page.upstreams.look()
        await page.upstreams.look()
        found = Page(await page.rendered())
    finally:
        server.close()
    assert found.value("tollkeeper_pool_queue_requests", pool="m") == 4
    assert found.value("tollkeeper_pool_kv_usage_ratio", pool="m") == 0.9
    assert found.value("tollkeeper_pool_ttft_seconds", pool="m") == 2


def examples() -> list[dict[str, object]]:
    blocks = PLANNING.read_text().split("```yaml\n")[1:]
    found = [yaml.safe_load(block.partition("```")[0]) for block in blocks]
    return [one for one in found if isinstance(one, dict) and one.get("kind") == "ScaledObject"]


@pytest.mark.parametrize("example", examples()[1:], ids=["vllm"])
def test_the_example_of_the_docs_asks_for_signals_that_there_are(example) -> None:
    times = FirstTokenTimes()
    for at, stages in ((0.0, ((0.0, 0),)), (1.0, ((1.0, 1),))):
        times.note(told(*stages), at)
    found = page_of(snapshot_of(chat={"a": "u"}), times, a=ServerGauges("vllm", waiting=0, running=0, kv_usage=0.0))
    queries = [trigger["metadata"]["query"] for trigger in example["spec"]["triggers"]]
    asked = {word.split("{")[0] for query in queries for word in query.removeprefix("max(").split(" * ")}
    assert len(queries) == 3 and asked <= set(found.metrics), "by name, over gateways"
    assert all('{pool="chat"}' in query and query.startswith("max(") for query in queries)
