"""A model changed for another while it serves: the old one stays until the new one is well."""

import threading
from pathlib import Path

from bench.scripted_engine import Script
from contracts.errors import Unavailable
from tests.backends.engine.host_client import StartHost, make_submit
from tests.backends.engine.sleepy_engine import GIB, Gpu, SleepyModels, a_host, measured, thread

PROMPT = list(range(20))


async def test_a_swap_keeps_the_old_model_until_the_new_one_is_well_and_ends_no_answer(start_host: StartHost) -> None:
    models = SleepyModels(script=Script(step_seconds=0.005))
    running, client = await a_host(start_host, models, "m")
    long_prompt = [7] * 300
    for number in (1, 2):
        await client.run(make_submit(number, long_prompt, model="m", max_tokens=1))
    under_way = make_submit(3, PROMPT, model="m", max_tokens=60)
    client.send(under_way)
    await client.until(lambda: bool(client.deltas(under_way.request_id)))
    old = thread(running, "m")
    answer = await client.call("swap", "m", "scripted", seconds=30)
    assert answer.ok, answer.error_message
    assert (answer.facts["prefixes_warmed"], answer.facts["aborted"]) == (1, 0)
    end = await client.end(under_way.request_id)
    assert (end.finish_reason, len(client.token_ids(under_way.request_id))) == ("length", 60)
    assert thread(running, "m") is not old
    assert models.deeds["m"] == ["load", "load", "close"]
    assert set(client.states("m")) <= {"loading", "warming", "ready"}
    assert (await client.run(make_submit(4, PROMPT, model="m"))).finish_reason == "length"


async def test_a_swap_whose_new_model_does_not_load_leaves_the_old_one(start_host: StartHost) -> None:
    models = SleepyModels()
    running, client = await a_host(start_host, models, "m")
    models.load_error = lambda order: Unavailable("no such weights")
    answer = await client.call("swap", "m", "scripted")
    assert (answer.ok, answer.error_code) == (False, "swap_failed")
    assert "no such weights" in answer.error_message and "serves on" in answer.error_message
    assert (await client.run(make_submit(1, PROMPT, model="m"))).finish_reason == "length"


async def test_a_swap_whose_probe_fails_leaves_the_old_one(start_host: StartHost) -> None:
    broken = threading.Event()
    models = SleepyModels()
    running, client = await a_host(start_host, models, "m")
    models.script = Script(break_step=broken)
    broken.set()
    answer = await client.call("swap", "m", "scripted")
    assert (answer.ok, answer.error_code) == (False, "swap_failed")
    assert (await client.run(make_submit(1, PROMPT, model="m"))).finish_reason == "length"


async def test_a_swap_without_room_for_both_is_refused_with_the_sum(start_host: StartHost) -> None:
    models = SleepyModels(gpu=Gpu(total=50 * GIB))
    running, client = await a_host(start_host, models, "m")
    models.gpu.watched_by(running.host.devices)
    await measured(running, models, "m")
    refused = await client.call("swap", "m", "scripted")
    assert (refused.ok, refused.error_code) == (False, "gpu_memory")
    assert "20.0 GiB free" in refused.error_message and "in use by m 30.0 GiB" in refused.error_message
    assert models.deeds["m"][-1] == "load"


async def test_adapters_loaded_by_hand_come_back_with_the_model(start_host: StartHost, tmp_path: Path) -> None:
    running, client = await a_host(start_host, SleepyModels(), "m")
    for name in ("kept", "gone"):
        assert (await client.call("load_adapter", "m", str(tmp_path), adapter=name)).ok
    assert (await client.call("unload_adapter", "m", adapter="gone")).ok
    assert thread(running, "m").order.adapters == (("kept", tmp_path),)
    await running.host.lifecycle.put_away(thread(running, "m"))
    assert thread(running, "m").order.adapters == (("kept", tmp_path),)
    assert (await client.call("swap", "m", "scripted")).ok
    assert thread(running, "m").order.adapters == (("kept", tmp_path),)
