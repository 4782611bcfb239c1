"""A host's models rest when idle and come back when asked for; nobody's request is lost to that."""

import asyncio
import threading
import time

import pytest

from backends.engine.engine_thread import Output
from backends.engine.pace import REFERENCE_STEPS
from backends.gpu.base import DeviceIdentity, DeviceSample, Round
from backends.gpu.sampler import GpuSampler
from bench.scripted_engine import Script
from contracts.engine.wire import Hello
from contracts.errors import Unavailable
from contracts.recording.records import StepRecord
from tests.backends.engine.host_client import StartHost, make_submit
from tests.backends.engine.sleepy_engine import GIB, Gpu, SleepyModels, a_host, load, measured, thread

PROMPT = list(range(20))
SECOND = 1_000_000_000


async def test_a_model_put_to_sleep_is_woken_by_a_request_which_says_how_long_that_took(start_host: StartHost) -> None:
    gate = threading.Event()
    models = SleepyModels(wake_gate=gate)
    running, client = await a_host(start_host, models, "m")
    assert (await client.call("sleep", "m", level=2)).ok
    assert models.deeds["m"] == ["load", "sleep 2"]
    assert client.states("m")[-1] == "ready"  # it is asked for as before
    submit = make_submit(1, PROMPT, model="m")
    client.send(submit)
    await client.call("health")
    assert not client.ends(submit.request_id)
    gate.set()
    end = await client.end(submit.request_id)
    assert end.finish_reason == "length"
    assert end.cold_start_ns is not None and end.cold_start_ns > 0
    assert models.deeds["m"] == ["load", "sleep 2", "wake"]
    warm = await client.run(make_submit(2, PROMPT, model="m"))
    assert warm.cold_start_ns is None
    stats = (await client.call("stats", "m")).facts
    assert stats["is_awake"] is True
    assert isinstance(stats["wake_last_seconds"], float)
    assert stats["load_expected_seconds"] is None


async def test_a_model_put_away_is_loaded_by_a_request_and_known_meanwhile(start_host: StartHost) -> None:
    models = SleepyModels()
    running, client = await a_host(start_host, models, "m")
    await running.host.lifecycle.put_away(thread(running, "m"))
    assert models.gpu.held == {}
    hello = client.of(Hello)[-1].models[0]
    assert (hello.id, hello.state, bool(hello.tokenizer)) == ("m", "ready", True)
    assert (await client.call("stats", "m")).facts["is_awake"] is False
    ends = await asyncio.gather(*(client.run(make_submit(number, PROMPT, model="m")) for number in (1, 2, 3)))
    assert [end.finish_reason for end in ends] == ["length"] * 3
    assert all(end.cold_start_ns for end in ends)
    assert models.deeds["m"] == ["load", "close", "load"]
    assert client.states("m")[-1] == "ready"


async def test_a_model_put_away_can_be_unloaded_for_good(start_host: StartHost) -> None:
    running, client = await a_host(start_host, SleepyModels(), "m")
    await running.host.lifecycle.put_away(thread(running, "m"))
    assert (await client.call("unload", "m")).ok
    assert client.of(Hello)[-1].models == []


async def test_a_model_that_serves_is_not_put_to_sleep(start_host: StartHost) -> None:
    gate = threading.Event()
    running, client = await a_host(start_host, SleepyModels(script=Script(block_step=gate)), "m")
    submit = make_submit(1, PROMPT, model="m", max_tokens=1)
    client.send(submit)
    refused = await client.call("sleep", "m")
    assert (refused.ok, refused.error_code) == (False, "unavailable")
    assert "serves 1 requests" in refused.error_message
    gate.set()
    assert (await client.end(submit.request_id)).finish_reason == "length"


async def test_an_engine_that_cannot_sleep_says_so(start_host: StartHost) -> None:
    running, client = await a_host(start_host, SleepyModels(can_sleep=False), "m")
    refused = await client.call("sleep", "m")
    assert not refused.ok
    assert "cannot sleep" in refused.error_message
    assert (await client.run(make_submit(1, PROMPT, model="m"))).finish_reason == "length"


async def test_a_client_that_leaves_while_its_model_wakes_is_not_served(start_host: StartHost) -> None:
    gate = threading.Event()
    running, client = await a_host(start_host, SleepyModels(wake_gate=gate), "m")
    await client.call("sleep", "m")
    submit = make_submit(1, PROMPT, model="m", max_tokens=1000)
    client.send(submit)
    await client.call("health")
    running.host.models.get("m").abort(submit.request_id)
    gate.set()
    assert (await client.end(submit.request_id)).finish_reason == "abort"


async def test_a_model_that_does_not_wake_has_failed_and_its_requests_hear_it(start_host: StartHost) -> None:
    models = SleepyModels(wake_error=Unavailable("the driver says no"))
    running, client = await a_host(start_host, models, "m")
    await client.call("sleep", "m")
    end = await client.run(make_submit(1, PROMPT, model="m"))
    assert end.finish_reason == "error"
    assert "did not wake: the driver says no" in end.error_message
    assert client.states("m")[-1] == "failed"


async def test_a_model_that_cannot_be_loaded_again_has_failed(start_host: StartHost) -> None:
    models = SleepyModels()
    running, client = await a_host(start_host, models, "m")
    await running.host.lifecycle.put_away(thread(running, "m"))
    models.load_error = lambda order: Unavailable("the disk is gone")
    end = await client.run(make_submit(1, PROMPT, model="m"))
    assert end.finish_reason == "error"
    assert "the disk is gone" in end.error_message


async def test_idle_models_sleep_by_the_clock_and_warm_ones_stay(start_host: StartHost) -> None:
    models = SleepyModels()
    running, client = await a_host(
        start_host, models, "idle", "hot", engine_sleep_after_seconds=60, engine_warm="hot", engine_sleep_level=2
    )
    await running.host.lifecycle.tick()
    assert models.deeds == {"idle": ["load"], "hot": ["load"]}
    await running.host.lifecycle.tick(time.monotonic_ns() + 61 * SECOND)
    assert models.deeds == {"idle": ["load", "sleep 2"], "hot": ["load"]}


async def test_idle_models_are_unloaded_by_the_clock_once(start_host: StartHost) -> None:
    models = SleepyModels()
    running, client = await a_host(start_host, models, "m", engine_unload_after_seconds=60)
    await running.host.lifecycle.tick()
    for _ in range(2):
        await running.host.lifecycle.tick(time.monotonic_ns() + 61 * SECOND)
    assert models.deeds["m"] == ["load", "close"]


async def test_several_models_share_a_gpu_through_sleep(start_host: StartHost) -> None:
    models = SleepyModels(gpu=Gpu(total=70 * GIB))
    running, client = await a_host(start_host, models, "a", "b")
    models.gpu.watched_by(running.host.devices)
    await measured(running, models, "a", "b")
    assert running.host.lifecycle.memory.awake_bytes("a") == 30 * GIB
    await running.host.lifecycle.put_away(thread(running, "b"))
    models.awake = 50 * GIB  # as the third takes more than is left
    load(running, "c")
    await client.ready("c")
    assert sum(models.gpu.held.values()) == 80 * GIB  # nobody knew what it needs: the engine's own check is asked
    models.gpu.total = 110 * GIB
    models.gpu.tell(running.host.devices)
    models.awake = 30 * GIB
    assert (await client.run(make_submit(1, PROMPT, model="b"))).finish_reason == "length"
    assert models.deeds["a"][-1] == "load"
    models.gpu.total = 111 * GIB
    models.gpu.tell(running.host.devices)
    await running.host.lifecycle.sleep(thread(running, "b"), 1)
    models.gpu.total = 100 * GIB  # 81 are held: 19 are left, and 29 are needed to wake
    models.gpu.tell(running.host.devices)
    running.host.lifecycle.memory._asleep["b"] = GIB
    assert (await client.run(make_submit(2, PROMPT, model="b"))).finish_reason == "length"
    assert models.deeds["a"][-1] == "sleep 1"  # used longest ago


async def test_a_model_without_room_is_refused_with_the_sum(start_host: StartHost) -> None:
    models = SleepyModels(gpu=Gpu(total=70 * GIB))
    running, client = await a_host(start_host, models, "a", "b", engine_warm="a")
    models.gpu.watched_by(running.host.devices)
    await measured(running, models, "a", "b")
    await running.host.lifecycle.put_away(thread(running, "b"))
    models.gpu.total = 50 * GIB
    models.gpu.tell(running.host.devices)
    end = await client.run(make_submit(1, PROMPT, model="b"))
    assert (end.finish_reason, end.error_code) == ("error", "gpu_memory")
    assert "needs 30.0 GiB" in end.error_message and "20.0 GiB free" in end.error_message
    assert "in use by a 30.0 GiB" in end.error_message
    models.gpu.total = 70 * GIB
    models.gpu.tell(running.host.devices)
    assert (await client.run(make_submit(2, PROMPT, model="b"))).finish_reason == "length"  # it can be asked again


@pytest.mark.parametrize("level", [0, 3, True, "1"])
async def test_levels_of_sleep_are_one_and_two(start_host: StartHost, level: int) -> None:
    running, client = await a_host(start_host, SleepyModels(), "m")
    refused = await client.call("sleep", "m", level=level)
    assert (refused.ok, refused.error_code) == (False, "invalid_request")


def steps(engine: str, slowness: float, count: int) -> Output:
    """Return what an engine brings whose steps of eight rows take 4 ms times `slowness`."""
    record = StepRecord(
        engine=engine,
        sequence=1,
        started_at_ns=1,
        busy_ns=round(4_000_000 * slowness),
        model="m",
        devices=["cuda:0"],
        scheduled=[1] * 8,
        context=[50] * 8,
    )
    return Output(steps=[record] * count)


async def test_a_model_that_became_slow_rests_a_minute_and_is_tried_again(start_host: StartHost) -> None:
    running, client = await a_host(start_host, SleepyModels(), "m", engine_slow_ratio=2.0)
    model, lifecycle = thread(running, "m"), running.host.lifecycle
    running.host.on_output(model, steps(model.order.engine, 1.0, REFERENCE_STEPS))
    now_ns = time.monotonic_ns()
    await lifecycle.tick(now_ns)
    assert lifecycle._fitting is not None
    await lifecycle._fitting
    running.host.on_output(model, steps(model.order.engine, 1.9, 3 * 64))
    await lifecycle.tick(now_ns)
    assert client.states("m")[-1] == "ready"
    running.host.on_output(model, steps(model.order.engine, 2.5, 3 * 64))
    facts = lifecycle.facts(model)
    assert facts["is_slow"] is True and facts["slow_ratio"] == pytest.approx(2.5, rel=0.05)
    await lifecycle.tick(now_ns)
    refused = await client.run(make_submit(1, PROMPT, model="m"))
    assert (refused.finish_reason, client.states("m")[-1]) == ("error", "draining")
    await lifecycle.tick(now_ns + 59 * SECOND)
    assert model.state == "draining"
    await lifecycle.tick(now_ns + 61 * SECOND)
    assert (await client.run(make_submit(2, PROMPT, model="m"))).finish_reason == "length"


async def test_no_limit_judges_no_pace(start_host: StartHost) -> None:
    running, client = await a_host(start_host, SleepyModels(), "m", engine_slow_ratio=0)
    model = thread(running, "m")
    running.host.on_output(model, steps(model.order.engine, 1.0, REFERENCE_STEPS))
    await running.host.lifecycle.tick()
    assert running.host.lifecycle._fitting is None


async def test_idle_models_make_room_for_one_whose_need_is_stated(start_host: StartHost) -> None:
    models = SleepyModels(gpu=Gpu(total=50 * GIB))
    running, client = await a_host(start_host, models, "a")
    models.gpu.watched_by(running.host.devices)
    await measured(running, models, "a")
    refused = await client.call("load", "b", "scripted", gpu_memory_bytes=51 * GIB)
    assert (refused.ok, refused.error_code) == (False, "gpu_memory")
    assert (await client.call("load", "b", "scripted", gpu_memory_bytes=30 * GIB)).ok
    assert models.deeds["a"][-1] == "sleep 1"
    assert (await client.run(make_submit(1, PROMPT, model="a"))).cold_start_ns


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2"])
async def test_a_stated_need_is_a_size(start_host: StartHost, size: int) -> None:
    running, client = await a_host(start_host, SleepyModels(), "m")
    for verb in ("load", "swap"):
        refused = await client.call(verb, "m", "scripted", gpu_memory_bytes=size)
        assert (refused.ok, refused.error_code) == (False, "invalid_request")


async def test_a_real_model_put_away_answers_as_before(start_host: StartHost) -> None:
    running = await start_host("tiny")
    client = await running.client()
    await client.ready()
    before = make_submit(1, PROMPT, max_tokens=8)
    await client.run(before)
    await running.host.lifecycle.put_away(thread(running, "tiny"))
    after = make_submit(2, PROMPT, max_tokens=8)
    end = await client.run(after)
    assert end.cold_start_ns
    assert client.token_ids(after.request_id) == client.token_ids(before.request_id)


async def test_a_request_that_comes_while_the_gpu_is_looked_at_keeps_its_model_awake(
    start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    models = SleepyModels(script=Script(block_step=gate))
    running, client = await a_host(start_host, models, "m")
    submit = make_submit(1, PROMPT, model="m", max_tokens=1)

    async def a_request_comes() -> None:
        client.send(submit)
        while not running.host.requests:
            await asyncio.sleep(0)

    monkeypatch.setattr(running.host.devices, "refresh", a_request_comes)
    with pytest.raises(Unavailable, match="serves 1 requests"):
        await running.host.lifecycle.sleep(thread(running, "m"), 1)
    gate.set()
    assert (await client.end(submit.request_id)).cold_start_ns is None
    assert models.deeds["m"] == ["load"]


async def test_a_model_needs_room_only_on_the_gpus_it_is_on(start_host: StartHost) -> None:
    models = SleepyModels(gpu=Gpu(total=50 * GIB))
    running, client = await a_host(start_host, models, "m")
    watch = running.host.devices
    models.gpu.watched_by(watch)
    await measured(running, models, "m")
    full = DeviceSample("GPU-2", 0, memory_total_bytes=80 * GIB, memory_free_bytes=GIB, processes=())
    watch.start(GpuSampler([], lambda found: None), [DeviceIdentity(uuid, 0, "a GPU") for uuid in ("GPU-1", "GPU-2")])
    watch.take(Round((models.gpu.sample(), full)))
    watch.marked(steps("e", 1.0, 1))  # on cuda:0
    await running.host.lifecycle.put_away(thread(running, "m"))
    watch.take(Round((models.gpu.sample(), full)))
    assert (await client.run(make_submit(1, PROMPT, model="m"))).finish_reason == "length"
