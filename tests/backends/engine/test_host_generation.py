"""Requests over a real socket: what is asked for comes, to the one that asked, and stops when it should."""

import asyncio
import random
import threading
import time

import pytest
from tokenizers import Tokenizer

from backends.engine.base import ModelOrder
from backends.engine.engine_thread import EngineThread
from bench.scripted_engine import Script, ScriptedEngine
from contracts.engine.wire import Abort, Answer, Grammar, Hello, Submit
from tests.backends.engine.host_client import HostClient, RunningHost, StartHost, make_submit

TINY_CONTEXT = 512
TINY_VOCABULARY = 512


def prompt(length: int = 20, seed: int = 1) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(2, TINY_VOCABULARY) for _ in range(length)]


async def test_the_built_in_model_answers_in_text(start_host: StartHost) -> None:
    running = await start_host("builtin")
    client = await (await running.client()).ready("builtin")
    model = client.of(Hello)[-1].models[0]
    tokenizer = Tokenizer.from_str(model.tokenizer.decode())
    submit = make_submit(
        1,
        tokenizer.encode("A lighthouse is").ids,
        max_tokens=40,
        model="builtin",
        tokenizer_hash=model.tokenizer_hash,
        template_hash=model.template_hash,
    )
    end = await client.run(submit)
    ids = client.token_ids(submit.request_id)
    assert (end.finish_reason, end.error_code, len(ids)) == ("length", "", 40)
    assert end.usage.output_text == 40
    assert end.usage.input_tokens == len(submit.token_ids)
    assert client.text(submit.request_id) == tokenizer.decode(ids)
    assert end.gpu is not None and end.gpu.decode_ns > 0 and end.gpu.method == "steptime-as/1"
    times = [at for delta in client.deltas(submit.request_id) for at in delta.times_ns]
    assert len(times) == 40 and times == sorted(times) and times[-1] <= time.monotonic_ns()


async def test_batched_and_alone_give_the_same_greedy_tokens(start_host: StartHost) -> None:
    running = await start_host("tiny")
    client = await (await running.client()).ready()
    submits = [make_submit(number, prompt(10 + number, number), max_tokens=24) for number in range(1, 9)]
    for submit in submits:
        client.send(submit)
    for submit in submits:
        await client.end(submit.request_id)
    for submit in submits:
        again = make_submit(100 + submit.request_id[-1], submit.token_ids, max_tokens=24)
        await client.run(again)
        assert client.token_ids(again.request_id) == client.token_ids(submit.request_id)


async def test_each_gateway_hears_of_its_own_requests_only(start_host: StartHost) -> None:
    running = await start_host("tiny")
    first, second = [await running.client(name) for name in ("first", "second")]
    await first.ready()
    await second.ready()
    mine, theirs = make_submit(1, prompt()), make_submit(2, prompt(seed=2))
    await asyncio.gather(first.run(mine), second.run(theirs))
    assert {delta.request_id for delta in first.of(type(first.deltas(mine.request_id)[0]))} == {mine.request_id}
    assert not second.deltas(mine.request_id)
    assert len(second.token_ids(theirs.request_id)) == 16


async def test_every_choice_of_a_request_is_streamed(start_host: StartHost) -> None:
    running = await start_host("tiny")
    client = await (await running.client()).ready()
    submit = make_submit(1, prompt(), n=3, temperature=1.0, seed=5)
    end = await client.run(submit)
    assert [len(client.token_ids(submit.request_id, index)) for index in range(3)] == [16, 16, 16]
    assert end.usage.output_text == 48


@pytest.mark.parametrize("share", [0.01, 0.1, 0.25])
async def test_an_abort_stops_the_engine_long_before_its_answer_would_end(start_host: StartHost, share: float) -> None:
    running = await start_host("tiny")
    client = await (await running.client()).ready()
    submit = make_submit(1, prompt(), max_tokens=400)
    client.send(submit)
    await client.until(lambda: len(client.token_ids(submit.request_id)) >= share * 400)
    client.send(Abort(request_id=submit.request_id))
    end = await client.end(submit.request_id)
    assert end.finish_reason == "abort"
    assert end.usage.output_text == len(client.token_ids(submit.request_id)) < 400
    assert await held_blocks(running) == 0


@pytest.mark.parametrize("share", [0.01, 0.1, 0.25])
async def test_a_gateway_that_vanishes_frees_everything_long_before_its_answers_would_end(
    start_host: StartHost, share: float
) -> None:
    running = await start_host("tiny")
    client = await (await running.client()).ready()
    submits = [make_submit(number, prompt(seed=number), max_tokens=400) for number in range(1, 5)]
    for submit in submits:
        client.send(submit)
    await client.until(lambda: len(client.token_ids(submits[0].request_id)) >= share * 400)
    assert await held_blocks(running) > 0
    client.writer.transport.abort()
    while running.host.requests:
        await asyncio.sleep(0)
    assert await held_blocks(running) == 0
    assert running.host.counters.orphaned == 4  # an answer that has reached its end is no orphan


async def held_blocks(running: RunningHost) -> int:
    thread = running.host.models.get("tiny")
    assert isinstance(thread, EngineThread)
    stats = await thread.call(lambda engine: engine.stats())
    assert isinstance(stats, dict)
    return int(stats["kv_blocks_held"])


REFUSED: dict[str, dict[str, object]] = {
    "context_length_exceeded": {"token_ids": prompt(TINY_CONTEXT)},
    "token_out_of_range": {"token_ids": [5, TINY_VOCABULARY]},
    "token_out_of_range of a negative id": {"token_ids": [5, -1]},
    "token_out_of_range of a huge id": {"token_ids": [5, 2**62]},
    "unknown_adapter": {"adapter": "nobody"},
    "model_not_found": {"model": "nobody"},
    "tokenizer_mismatch": {"tokenizer_hash": "0" * 64},
    "tokenizer_mismatch of the template": {"template_hash": "0" * 64},
    "invalid_request of an empty prompt": {"token_ids": []},
    "invalid_request of sampling": {"top_p": 0.0},
    "invalid_grammar of a schema": {"grammar": Grammar(kind="json_schema", text='{"type": "nothing"}')},
    "invalid_grammar of a schema's JSON": {"grammar": Grammar(kind="json_schema", text="{")},
    "invalid_grammar of a regex": {"grammar": Grammar(kind="regex", text="(")},
}


async def test_what_cannot_be_served_is_refused_by_name(start_host: StartHost) -> None:
    running = await start_host("tiny")
    client = await (await running.client()).ready()
    for number, (name, refused) in enumerate(REFUSED.items()):
        options: dict[str, object] = {"token_ids": prompt()} | refused
        submit = make_submit(2 * number, options.pop("token_ids"), **options)  # type: ignore[arg-type]  # the table's
        end = await client.run(submit)
        assert end.finish_reason == "error", name
        assert end.error_code in (name.split(" ")[0], "invalid_request"), name
        if "grammar" not in name:
            assert end.error_code == name.split(" ")[0], name
        assert end.error_message and "Traceback" not in end.error_message, name
        assert end.usage.output_text == 0, name
        assert (await client.run(make_submit(2 * number + 1, prompt()))).error_code == "", name


async def test_a_request_id_in_use_is_refused_without_ending_the_first(start_host: StartHost) -> None:
    running = await start_host("tiny")
    first, second = [await running.client(name) for name in ("first", "second")]
    await first.ready()
    submit = make_submit(1, prompt(), max_tokens=200)
    first.send(submit)
    first.send(submit)
    second.send(submit)
    assert (await second.end(submit.request_id)).error_code == "conflict"
    assert (await first.end(submit.request_id)).finish_reason == "length"
    assert len(first.token_ids(submit.request_id)) == 200
    assert [one.error_code for one in first.of(Answer)] == ["conflict"]


async def test_a_gateway_cannot_abort_what_is_not_its_own(start_host: StartHost) -> None:
    running = await start_host("tiny")
    first, second = [await running.client(name) for name in ("first", "second")]
    await first.ready()
    submit = make_submit(1, prompt(), max_tokens=100)
    first.send(submit)
    second.send(Abort(request_id=submit.request_id))
    assert (await first.end(submit.request_id)).finish_reason == "length"


@pytest.mark.parametrize("size", [0, 15, 17])
async def test_a_request_id_of_no_use_is_refused(start_host: StartHost, size: int) -> None:
    running = await start_host("scripted")
    client = await (await running.client()).ready("scripted")
    submit = Submit(request_id=b"x" * size, model="scripted", token_ids=[1], sampling=make_submit(1, [1]).sampling)
    assert (await client.run(submit)).error_code == "invalid_request"


async def test_more_requests_than_the_limit_are_refused(start_host: StartHost) -> None:
    release = threading.Event()
    running = await start_host("scripted", script=Script(block_step=release), engine_max_requests=2)
    client = await (await running.client()).ready("scripted")
    for number in (1, 2, 3):
        client.send(make_submit(number, [1], model="scripted"))
    end = await client.end((3).to_bytes(16, "big"))
    assert end.error_code == "engine_full" and "2 requests" in end.error_message
    release.set()
    assert (await client.end((2).to_bytes(16, "big"))).finish_reason == "length"


class SlowIntake(ScriptedEngine):
    """Is slow to accept a request with a grammar."""

    gate = threading.Event()

    def submit(self, submit: Submit) -> None:
        if submit.grammar is not None:
            self.gate.wait()
        super().submit(submit)


async def test_a_slow_grammar_delays_nobody_else_and_can_be_aborted(start_host: StartHost) -> None:
    SlowIntake.gate.clear()
    running = await start_host("scripted", build=build_slow)
    client = await (await running.client()).ready("scripted")
    slow = make_submit(1, [1], max_tokens=10**6, model="scripted", grammar=Grammar(kind="regex", text="a*"))
    client.send(slow)
    assert (await client.run(make_submit(2, [1], model="scripted"))).finish_reason == "length"
    client.send(Abort(request_id=slow.request_id))
    assert (await client.run(make_submit(3, [1], model="scripted"))).finish_reason == "length"
    assert not client.ends(slow.request_id)
    SlowIntake.gate.set()
    assert (await client.end(slow.request_id)).finish_reason == "abort"


def build_slow(order: ModelOrder) -> SlowIntake:
    return SlowIntake(order, Script())


async def test_a_gateway_that_leaves_during_a_slow_intake_leaves_nothing_running(start_host: StartHost) -> None:
    SlowIntake.gate.clear()
    running = await start_host("scripted", build=build_slow)
    client = await (await running.client()).ready("scripted")
    client.send(make_submit(1, [1], max_tokens=10**9, model="scripted", grammar=Grammar(kind="regex", text="a*")))
    await client.run(make_submit(2, [1], model="scripted"))
    await client.close()
    while not running.host.counters.orphaned:
        await asyncio.sleep(0.005)
    SlowIntake.gate.set()
    while running.host.requests:  # what the engine took in is ended, and its account written
        await asyncio.sleep(0.005)
    other: HostClient = await running.client("other")
    await other.run(make_submit(3, [1], model="scripted"))
    deadline = asyncio.get_running_loop().time() + 5
    while (await other.call("stats", "scripted")).facts["running"]:
        assert asyncio.get_running_loop().time() < deadline
