"""Models come, go, fail and get stuck while a host runs; the one that asks is told how it stands."""

import asyncio
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from backends.engine import calls
from backends.engine.app import revive, watch
from backends.engine.base import ModelOrder
from backends.engine.revival import Revival
from backends.engine.torch_engine.constraint import Constraint, GrammarCompiler
from bench.scripted_engine import Script, ScriptedEngine
from contracts.engine.wire import Grammar, Hello
from contracts.errors import Unavailable
from tests.backends.engine.host_client import HostClient, StartHost, make_submit
from tests.backends.engine.sleepy_engine import SleepyEngine, SleepyModels

TOKENS = list(range(2, 30))


async def test_a_gateway_sees_a_model_load_warm_up_and_become_ready(start_host: StartHost) -> None:
    running = await start_host("tiny")
    client = await (await running.client()).ready()
    assert client.states("tiny") == ["loading", "warming", "ready"]
    progress = [hello.models[0].progress for hello in client.of(Hello)]
    assert progress == sorted(progress) and progress[-1] == 1.0


async def test_nothing_is_served_before_it_is_ready(start_host: StartHost) -> None:
    gate = threading.Event()

    def build(order: ModelOrder) -> ScriptedEngine:
        gate.wait()
        return ScriptedEngine(order, Script())

    running = await start_host("scripted", build=build)
    client = await running.client()
    end = await client.run(make_submit(1, [1], model="scripted"))
    assert end.error_code == "unavailable" and "loading" in end.error_message
    gate.set()
    await client.ready("scripted")
    assert (await client.run(make_submit(2, [1], model="scripted"))).finish_reason == "length"


async def test_a_model_whose_warm_up_fails_gives_its_memory_back(
    start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(engine: SleepyEngine) -> None:
        raise Unavailable("its process has died")

    monkeypatch.setattr(SleepyEngine, "warm_up", fail)
    models = SleepyModels()
    running = await start_host("scripted", build=models.build)
    client = await running.client()
    await client.until(lambda: client.states("scripted")[-1:] == ["failed"])
    assert models.deeds == {"scripted": ["load", "close"]} and models.gpu.held == {}


async def test_a_model_is_loaded_and_unloaded_by_a_call(start_host: StartHost, tiny_path: Path) -> None:
    running = await start_host()
    client = await running.client()
    answer = await client.call("load", "mine", str(tiny_path), max_sequences=4)
    assert answer.ok and answer.facts["state"] == "ready"
    assert (await client.run(make_submit(1, TOKENS, model="mine"))).finish_reason == "length"
    assert (await client.call("load", "mine", str(tiny_path))).error_code == "conflict"
    assert (await client.call("unload", "mine")).ok
    assert client.of(Hello)[-1].models == []
    assert (await client.run(make_submit(2, TOKENS, model="mine"))).error_code == "model_not_found"
    assert (await client.call("load", "mine", str(tiny_path))).ok
    assert (await client.run(make_submit(3, TOKENS, model="mine"))).finish_reason == "length"


async def test_two_models_serve_side_by_side(start_host: StartHost, tiny_path: Path) -> None:
    running = await start_host("tiny")
    client = await running.client()
    assert (await client.call("load", "second", str(tiny_path))).ok
    await client.ready("tiny")
    first, second = make_submit(1, TOKENS), make_submit(2, TOKENS, model="second")
    await asyncio.gather(client.run(first), client.run(second))
    assert client.token_ids(first.request_id) == client.token_ids(second.request_id)


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("/nowhere/at/all", {}, "no model directory /nowhere/at/all"),
        ("EMPTY", {}, "no config.json"),
        ("PICKLE", {}, "pickle"),
        ("TINY", {"kv_bytes": 1000}, "MiB of keys and values"),
        ("TINY", {"device": "abacus"}, "abacus"),
        ("TINY", {"dtype": "int3"}, "int3"),
        ("TINY", {"colour": "red"}, "colour"),
        ("TINY", {"kv_bytes": "much"}, "kv_bytes"),
        ("", {}, "needs a name and a path"),
    ],
)
async def test_a_model_that_cannot_be_loaded_says_why(
    start_host: StartHost, tiny_path: Path, tmp_path: Path, path: str, options: dict[str, float | str], words: str
) -> None:
    if path == "EMPTY":
        path = str(tmp_path)
    elif path == "PICKLE":
        copy = tmp_path / "pickle"
        shutil.copytree(tiny_path, copy)
        (copy / "model.safetensors").unlink()
        (copy / "pytorch_model.bin").write_bytes(b"\x80")
        path = str(copy)
    elif path == "TINY":
        path = str(tiny_path)
    running = await start_host("scripted")
    client = await (await running.client()).ready("scripted")
    answer = await client.call("load", "bad", path, **options)
    assert not answer.ok and words in answer.error_message
    assert (await client.run(make_submit(1, [1], model="scripted"))).finish_reason == "length"
    if path:
        health = await client.call("health", "bad")
        assert health.facts["healthy"] is False and words in str(health.facts["failure"])
        # The name is free again for a better try.
        assert (await client.call("load", "bad", str(tiny_path))).ok


async def test_a_hub_that_cannot_be_reached_is_said_so(start_host: StartHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    running = await start_host()
    client = await running.client()
    answer = await client.call("load", "far", "somebody/something")
    assert "cannot be reached" in answer.error_message and "local directory" in answer.error_message


async def test_unloading_lets_requests_end_and_aborts_those_that_take_too_long(start_host: StartHost) -> None:
    running = await start_host("scripted", script=Script(step_seconds=0.005))
    client = await (await running.client()).ready("scripted")
    short, long = (make_submit(n, [1], model="scripted", max_tokens=tokens) for n, tokens in ((1, 10), (2, 10**9)))
    client.send(short)
    client.send(long)
    await client.until(lambda: bool(client.deltas(long.request_id)))
    answer = await client.call("unload", "scripted", seconds=0.5)
    assert answer.facts["aborted"] == 1
    assert client.ends(short.request_id)[0].finish_reason == "length"
    end = client.ends(long.request_id)[0]
    assert (end.finish_reason, end.error_code) == ("error", "draining")
    assert end.usage.output_text == len(client.token_ids(long.request_id)) > 0
    assert "draining" in client.states("scripted")


async def test_draining_refuses_what_is_new_and_waits_for_the_rest(start_host: StartHost) -> None:
    running = await start_host("scripted", script=Script(step_seconds=0.005))
    client = await (await running.client()).ready("scripted")
    old = make_submit(1, [1], model="scripted", max_tokens=60)
    client.send(old)
    await client.until(lambda: bool(client.deltas(old.request_id)))
    early = await client.call("drain", seconds=0)
    assert early.facts["remaining"] == 1
    assert (await client.run(make_submit(2, [1], model="scripted"))).error_code == "draining"
    assert (await client.call("drain")).facts["remaining"] == 0
    assert client.ends(old.request_id)[0].finish_reason == "length"
    assert (await client.call("health")).facts["healthy"] is False


async def test_draining_one_model_leaves_the_others_serving(start_host: StartHost) -> None:
    running = await start_host("tiny", "scripted")
    client = await (await (await running.client()).ready()).ready("scripted")
    assert (await client.call("drain", "tiny")).ok
    assert (await client.run(make_submit(1, TOKENS))).error_code == "unavailable"
    assert (await client.run(make_submit(2, [1], model="scripted"))).finish_reason == "length"


async def test_health_tells_latency_queue_and_age(start_host: StartHost) -> None:
    running = await start_host("tiny")
    client = await (await running.client()).ready()
    await client.run(make_submit(1, TOKENS))
    facts = (await client.call("health", "tiny")).facts
    assert facts["healthy"] is True and facts["state"] == "ready"
    assert float(facts["step_p99_ms"] or 0) >= float(facts["step_p50_ms"] or 0) > 0
    assert 0 <= float(facts["last_step_age_seconds"] or -1) < 60
    assert facts["requests"] == 0 and facts["connections"] == 1
    stats = (await client.call("stats")).facts
    assert stats["requests_taken"] == 1 and stats["tiny.running"] == 0 and int(stats["rss_bytes"] or 0) > 0


@pytest.mark.parametrize("verb", ["unload", "drain", "health", "stats", "load_adapter"])
async def test_a_call_about_no_model_is_refused(start_host: StartHost, verb: str) -> None:
    running = await start_host()
    client = await running.client()
    assert (await client.call(verb, "nobody", adapter="a")).error_code == "model_not_found"


async def test_a_stuck_step_makes_the_model_unhealthy_and_it_may_come_back(start_host: StartHost) -> None:
    release = threading.Event()
    running = await start_host("scripted", script=Script(block_step=release), engine_stuck_seconds=0.2)
    watching = asyncio.create_task(watch(running.host))
    client = await (await running.client()).ready("scripted")
    end = await client.run(make_submit(1, [1], model="scripted"))
    assert (end.finish_reason, end.error_code) == ("error", "engine_failure")
    assert end.usage.output_text is None
    facts = (await client.call("health", "scripted")).facts
    assert facts["healthy"] is False and float(facts["running_step_ms"] or 0) > 200
    assert (await client.call("stats", "scripted")).ok
    assert (await client.run(make_submit(2, [1], model="scripted"))).error_code == "unavailable"
    release.set()
    await client.ready("scripted")
    assert (await client.run(make_submit(3, [1], model="scripted"))).finish_reason == "length"
    assert len(client.ends((1).to_bytes(16, "big"))) == 1
    watching.cancel()


async def test_a_step_longer_than_anybody_waits_for_counters_breaks_no_engine(
    start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_STATS_SECONDS", 0.05)
    release = threading.Event()
    running = await start_host("scripted", script=Script(block_step=release))
    client = await (await running.client()).ready("scripted")
    client.send(make_submit(1, [1], model="scripted"))
    while not running.host.models.get("scripted").stalled_ns():
        await asyncio.sleep(0.01)
    assert (await client.call("stats", "scripted")).ok
    release.set()
    assert (await client.end((1).to_bytes(16, "big"))).finish_reason == "length"
    assert (await client.run(make_submit(2, [1], model="scripted"))).finish_reason == "length"
    assert client.states("scripted")[-1] == "ready"


async def test_an_engine_that_breaks_answers_its_requests_and_can_be_loaded_again(start_host: StartHost) -> None:
    broken = threading.Event()
    running = await start_host("scripted", script=Script(step_seconds=0.005, break_step=broken))
    client = await (await running.client()).ready("scripted")
    submit = make_submit(1, [1], model="scripted", max_tokens=10**9)
    client.send(submit)
    await client.until(lambda: bool(client.deltas(submit.request_id)))
    broken.set()
    end = await client.end(submit.request_id)
    assert end.error_code == "engine_failure" and "AssertionError" in end.error_message
    await client.until(lambda: client.states("scripted")[-1] == "failed")
    broken.clear()
    assert (await client.call("load", "scripted", "scripted")).ok
    assert (await client.run(make_submit(2, [1], model="scripted"))).finish_reason == "length"


async def test_a_model_whose_engine_broke_is_loaded_again_and_says_how_it_is_meanwhile(start_host: StartHost) -> None:
    broken = threading.Event()
    running = await start_host("scripted", script=Script(step_seconds=0.005, break_step=broken))
    reviving = asyncio.create_task(revive(Revival(running.host.models, running.host.load_again)))
    client = await (await running.client()).ready("scripted")
    await asyncio.sleep(0.3)  # it has been seen to serve
    broken.set()
    assert (await client.run(make_submit(1, [1], model="scripted"))).error_code == "engine_failure"
    await client.until(lambda: client.states("scripted")[-1] == "failed")
    refused = await client.run(make_submit(2, [1], model="scripted"))
    assert refused.error_code == "unavailable" and "failed" in refused.error_message
    broken.clear()
    await client.until(lambda: client.states("scripted")[-1] == "ready")
    states = client.states("scripted")
    assert states[states.index("failed") :][:2] == ["failed", "loading"]
    assert (await client.run(make_submit(3, [1], model="scripted"))).finish_reason == "length"
    reviving.cancel()


async def test_no_sampling_value_ends_the_model(start_host: StartHost) -> None:
    running = await start_host("tiny")
    client = await (await running.client()).ready()
    for number, penalty in enumerate((1e-300, 1e-37, 1e300, float("nan")), 1):
        end = await client.run(make_submit(number, TOKENS, repetition_penalty=penalty, temperature=0.01))
        assert end.error_code == "invalid_request"
        assert f"repetition_penalty is {penalty}; it must be within 0.01 to 100" in end.error_message
    assert (await client.run(make_submit(9, TOKENS))).finish_reason == "length"
    assert client.states("tiny")[-1] == "ready"


async def test_an_error_in_loading_that_nobody_foresaw_fails_that_model_only(start_host: StartHost) -> None:
    def build(order: ModelOrder) -> ScriptedEngine:
        if order.name == "bad":
            raise ZeroDivisionError("secret")
        return ScriptedEngine(order, Script())

    running = await start_host("scripted", build=build)
    client = await (await running.client()).ready("scripted")
    answer = await client.call("load", "bad", "scripted")
    assert answer.error_code == "load_failed" and "secret" not in answer.error_message
    assert (await client.run(make_submit(1, [1], model="scripted"))).finish_reason == "length"


def save_adapter(path: Path) -> Path:
    """Save a LoRA adapter of rank 2 for the tiny Llama's query projections."""
    path.mkdir()
    torch.manual_seed(3)
    weights = {}
    for layer in range(2):
        prefix = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{prefix}.lora_A.weight"] = torch.randn(2, 64)
        weights[f"{prefix}.lora_B.weight"] = torch.randn(64, 2)
    save_file(weights, path / "adapter_model.safetensors")
    (path / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "bias": "none"}'
    )
    return path


async def test_an_adapter_is_loaded_used_and_unloaded(start_host: StartHost, tmp_path: Path) -> None:
    path = save_adapter(tmp_path / "adapter")
    running = await start_host("tiny")
    client = await (await running.client()).ready()
    answer = await client.call("load_adapter", "tiny", str(path), adapter="mine")
    assert answer.ok, answer.error_message
    assert client.of(Hello)[-1].models[0].adapters == ["mine"]
    plain, adapted = make_submit(1, TOKENS), make_submit(2, TOKENS, adapter="mine")
    await asyncio.gather(client.run(plain), client.run(adapted))
    assert client.token_ids(plain.request_id) != client.token_ids(adapted.request_id)
    assert (await client.call("unload_adapter", "tiny", adapter="mine")).ok
    assert client.of(Hello)[-1].models[0].adapters == []
    assert (await client.run(make_submit(3, TOKENS, adapter="mine"))).error_code == "unknown_adapter"


@pytest.mark.parametrize(("path", "options"), [("/nowhere", {"adapter": "a"}), ("/nowhere", {})])
async def test_an_adapter_that_cannot_be_loaded_says_why(
    start_host: StartHost, path: str, options: dict[str, str]
) -> None:
    running = await start_host("tiny")
    client = await (await running.client()).ready()
    answer = await client.call("load_adapter", "tiny", path, **options)
    assert not answer.ok and answer.error_message
    assert (await client.run(make_submit(1, TOKENS))).finish_reason == "length"


async def test_unloading_while_loading_waits_for_the_end_of_it(start_host: StartHost) -> None:
    gate = threading.Event()

    def build(order: ModelOrder) -> ScriptedEngine:
        gate.wait()
        return ScriptedEngine(order, Script())

    running = await start_host("scripted", build=build)
    client: HostClient = await running.client()
    unloading = asyncio.create_task(client.call("unload", "scripted"))
    await asyncio.sleep(0)
    gate.set()
    assert (await unloading).ok
    assert client.of(Hello)[-1].models == []


async def test_a_grammar_that_compiles_for_long_holds_up_its_tenant_alone(
    start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    compile_now = GrammarCompiler.compile

    def compile_slowly(compiler: GrammarCompiler, grammar: Grammar, given: Sequence[int] = ()) -> Constraint:
        if grammar.text == "[a-z]{3}":
            release.wait()
        return compile_now(compiler, grammar, given)

    monkeypatch.setattr(GrammarCompiler, "compile", compile_slowly)
    running = await start_host("tiny")
    client = await (await running.client()).ready()
    slow, fast = Grammar("regex", "[a-z]{3}"), Grammar("regex", "[a-z]{2}")
    options = {"max_tokens": 8, "ignore_eos": False}
    for number in range(1, 9):
        client.send(make_submit(number, TOKENS, grammar=slow, tenant="large", **options))
    client.send(make_submit(20, TOKENS, grammar=fast, tenant="large", **options))
    end = await client.run(make_submit(21, TOKENS, grammar=fast, tenant="other", **options))
    assert end.finish_reason == "stop"
    assert not client.ends((20).to_bytes(16, "big"))
    release.set()
    assert (await client.end((20).to_bytes(16, "big"))).finish_reason == "stop"
