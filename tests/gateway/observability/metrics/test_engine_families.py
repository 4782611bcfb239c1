"""GPUs, engines and other inference servers on the metrics page: what is unknown has no series."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from backends.engine_metrics.gauges import ServerGauges
from backends.engine_metrics.scraper import Scrape
from backends.gpu.base import DeviceIdentity, DeviceProcess, DeviceSample
from backends.gpu.facts import device_facts
from backends.llm.host.host_connection import HostStatus
from backends.llm.http.openai_http import OpenAIHttpTarget
from contracts.serving.configuration import EMPTY_SNAPSHOT, PoolSpec, Snapshot, TargetSpec
from gateway.observability.metrics.engine_families import gpu_families, model_families, upstream_families
from gateway.observability.metrics.exposition import Family, render
from gateway.observability.metrics.upstream_metrics import UpstreamMetrics
from tests.gateway.exposition_parser import Page

SAMPLE = DeviceSample(
    "GPU-1",
    1,
    memory_total_bytes=100,
    memory_used_bytes=40,
    energy_joules=12.5,
    throttle_reasons=("power_cap", "software_thermal"),
    ecc_corrected=0,
    sm_activity=0.5,
    processes=(DeviceProcess(9, is_ours=False, sm_ratio=0.3),),
)
FACTS = {
    **device_facts(DeviceIdentity("GPU-1", 0, "a GPU"), SAMPLE),
    "gpu_faults": 2,
    "m.running": 3,
    "m.waiting": 5,
    "m.waiting_for_room": 4,
    "m.waiting_deferred": 1,
    "m.prefix_cache_hits": 640,
    "m.is_awake": True,
    "m.wake_last_seconds": None,
    "m.slow_ratio": 1.25,
    "m.step_fit_version": "x/1",
}
HOSTS = {"gpu-0": HostStatus("ready", "", 1, "e", {"m": "ready"}, 0, 0, FACTS)}


def page(families: list[Family]) -> Page:
    return Page(b"".join(render(families)))


def test_a_gpu_s_readings_are_shown_and_what_could_not_be_read_is_not() -> None:
    found = page(list(gpu_families(HOSTS)))
    where = {"host": "gpu-0", "gpu": "GPU-1"}
    assert found.value("tollkeeper_gpu_memory_used_bytes", **where) == 40
    assert found.value("tollkeeper_gpu_energy_joules_total", **where) == 12.5
    assert found.value("tollkeeper_gpu_sm_activity_ratio", **where) == 0.5
    assert found.value("tollkeeper_gpu_shared", **where) == 1
    assert found.value("tollkeeper_gpu_throttled", reason="power_cap", **where) == 1
    assert len(found.labels("tollkeeper_gpu_throttled")) == 2
    assert found.value("tollkeeper_gpu_ecc_errors_total", kind="corrected", **where) == 0
    assert found.value("tollkeeper_gpu_faults_total", host="gpu-0") == 2
    assert not {"tollkeeper_gpu_dram_activity_ratio", "tollkeeper_gpu_power_watts"} & set(found.metrics)


def test_an_engine_tells_of_its_queue_cache_and_sleep() -> None:
    found = page(list(model_families(HOSTS)))
    where = {"host": "gpu-0", "model": "m"}
    assert found.value("tollkeeper_engine_running", **where) == 3
    assert found.value("tollkeeper_engine_prefix_hit_tokens_total", **where) == 640
    assert found.value("tollkeeper_engine_waiting_by_reason", reason="room", **where) == 4
    assert found.value("tollkeeper_engine_awake", **where) == 1
    assert found.value("tollkeeper_engine_slow_ratio", **where) == 1.25
    assert "tollkeeper_engine_wake_seconds" not in found.metrics


def test_other_servers_are_shown_by_target_and_one_that_is_away_as_such() -> None:
    gauges = ServerGauges("sglang", running=2, waiting=0, waiting_by_reason={"capacity": 7}, is_asleep=False)
    scrapes = {"t1": Scrape(gauges, "", True), "t2": Scrape(None, "refused"), "t3": Scrape(None, "unknown", True)}
    found = page(list(upstream_families(scrapes)))
    where = {"target": "t1", "engine": "sglang"}
    assert found.value("tollkeeper_upstream_running", **where) == 2
    assert found.value("tollkeeper_upstream_waiting", **where) == 0
    assert found.value("tollkeeper_upstream_asleep", **where) == 0
    assert found.value("tollkeeper_upstream_waiting_by_reason", reason="capacity", **where) == 7
    assert found.value("tollkeeper_upstream_metrics_reachable", target="t1") == 1
    assert found.value("tollkeeper_upstream_metrics_reachable", target="t2") == 0
    assert found.value("tollkeeper_upstream_metrics_reachable", target="t3") == 1
    assert found.value("tollkeeper_upstream_metrics_readable", target="t1") == 1
    assert found.value("tollkeeper_upstream_metrics_readable", target="t3") == 0
    assert {"target": "t2"} not in found.labels("tollkeeper_upstream_metrics_readable")
    assert "tollkeeper_upstream_kv_usage_ratio" not in found.metrics


def test_hosts_without_anything_to_tell_add_nothing() -> None:
    bare = {"h": HostStatus("away", "", None, "", {}, 0, 0)}
    assert b"".join(render([*gpu_families(bare), *model_families(bare), *upstream_families({})])) == b""


Serve = Callable[[], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[asyncio.Server] = []

    async def start() -> str:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while await reader.readuntil(b"\r\n\r\n"):
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\ntgi_queue_size 7\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"

    yield start
    for server in servers:
        server.close()


def configured(**urls: object) -> Snapshot:
    targets = tuple(
        TargetSpec(name, "p", "openai_http", settings={} if url is None else {"metrics_url": url})
        for name, url in urls.items()
    )
    return replace(EMPTY_SNAPSHOT, pools={"p": PoolSpec("p", targets)})


async def test_targets_with_an_address_are_asked_as_the_configuration_changes(serve: Serve) -> None:
    url = await serve()
    now = [configured(a=url, b=None, c="not a url")]
    upstreams = UpstreamMetrics(lambda: now[0])
    await upstreams.look()
    scrapes = upstreams.scrapes
    assert set(scrapes) == {"a", "c"}
    first = scrapes["a"].gauges
    assert first is not None and first.waiting == 7
    assert "not a url" in scrapes["c"].failure
    kept = upstreams._scrapers["a"]
    now[0] = configured(a=url, d=await serve())
    await upstreams.look()
    assert set(upstreams.scrapes) == {"a", "d"}
    assert upstreams._scrapers["a"] is kept
    now[0] = configured(b=None)
    await upstreams.look()
    assert upstreams.scrapes == {}


async def test_pages_of_llama_cpp_and_ollama_read_over_http() -> None:
    replies = {
        "/metrics": b"llamacpp:requests_processing 2\nllamacpp:prompt_tokens_total 247\nllamacpp:requests_deferred 0\n",
        "/api/ps": b'{"models":[{"name":"gemma3","size":6591830464,"size_vram":5333539264}]}',
    }

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(replies[path]), replies[path]))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    now = configured(a=f"{origin}/metrics", b=f"{origin}/api/ps")
    upstreams = UpstreamMetrics(lambda: now)
    await upstreams.look()
    found = page(list(upstream_families(upstreams.scrapes)))
    server.close()
    where = {"target": "a", "engine": "llamacpp"}
    assert found.value("tollkeeper_upstream_running", **where) == 2
    assert found.value("tollkeeper_upstream_waiting", **where) == 0
    assert found.value("tollkeeper_upstream_computed_prompt_tokens_total", **where) == 247
    where = {"target": "b", "engine": "ollama"}
    assert found.value("tollkeeper_upstream_loaded_models", **where) == 1
    assert found.value("tollkeeper_upstream_model_gpu_memory_bytes", **where) == 5_333_539_264
    assert found.labels("tollkeeper_upstream_running") == [{"target": "a", "engine": "llamacpp"}]
    assert "tollkeeper_upstream_prompt_tokens_total" not in found.metrics


async def test_the_gateway_s_page_holds_them(gateway) -> None:
    sources = gateway.gateway._metrics._endpoint._page
    assert sources.upstreams.scrapes == {}
    assert b"tollkeeper_build_info" in await sources.rendered()


def test_a_target_over_http_may_say_where_its_server_s_metrics_are() -> None:
    spec = TargetSpec(
        "t", "p", "openai_http", "http://127.0.0.1:9/v1", settings={"metrics_url": "http://127.0.0.1:9/m"}
    )
    assert OpenAIHttpTarget(spec, lambda reference: reference).spec is spec
