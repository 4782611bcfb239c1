"""An engine host behind the gateway that dies, stalls, lies or is away: who answers, who pays, and what is kept."""

import asyncio
import json

import pytest

from contracts.engine.wire import Abort, Attach, KvEvents, Steps, StepsAck, Submit
from contracts.metering.gaps import unpack_gaps
from contracts.metering.usage import Usage
from contracts.recording.records import AttemptRecord, KvRecord, StepRecord, encode_record
from tests.backends.llm.engine_fake import FakeHost, Play, builtin_hello


@pytest.fixture
async def new_host(tmp_path):
    hosts: list[FakeHost] = []

    async def start(play: Play | None = None, **more) -> FakeHost:
        host = FakeHost(tmp_path / f"h{len(hosts)}.sock", play, **more)
        hosts.append(host)
        return await host.start()

    yield start
    for host in hosts:
        await host.stop()


def engine_target(host: FakeHost, name: str = "e1") -> dict[str, object]:
    return {"name": name, "kind": "engine", "url": host.url}


@pytest.fixture
def start_with(start_gateway, kit, eventually):
    """Start a gateway in front of hosts, and wait until it has reached them."""

    async def start(*hosts: FakeHost, **settings):
        targets = [engine_target(host, f"e{number}") for number, host in enumerate(hosts, start=1)]
        gateway = await start_gateway(kit.configuration(("tiny", targets)), **settings)
        await eventually(lambda: all(state == "ready" for state in states(gateway)))
        return gateway

    return start


def states(gateway) -> list[str]:
    engines = gateway.gateway.health()["engines"]
    return [host["state"] for host in engines.values()]


async def ask(gateway, **fields):
    return await gateway.chat(**{"model": "tiny", **fields})


def streamed_text(answer) -> str:
    events = [json.loads(event.removeprefix(b"data: ")) for event in answer.events if b"[DONE]" not in event]
    return "".join(event["choices"][0]["delta"].get("content", "") for event in events if event.get("choices"))


async def test_how_long_a_request_waited_for_its_model_to_wake_stands_on_the_record(start_with, new_host):
    host = await new_host(Play(finished={"cold_start_ns": 348_000_000}))
    gateway = await start_with(host)
    await ask(gateway)
    host.play.finished.clear()
    await ask(gateway)
    assert [record.cold_start_ns for record in gateway.requests()] == [348_000_000, None]


async def test_the_engines_account_and_its_clock_stand_on_the_record(start_with, new_host):
    host = await new_host(Play(tokens=5, cached=4))
    gateway = await start_with(host)
    answer = await ask(gateway, stream=True)
    assert streamed_text(answer) == " one two three four five"
    [record] = gateway.requests()
    [submit] = host.of(Submit)
    prompt = len(submit.token_ids)
    assert record.usage == Usage(prompt - 4, cache_read_text=4, output_text=5)
    assert (record.count_method, record.engine_output_tokens, record.queue_ns) == ("exact", 5, 4_000_000)
    assert (record.recompute_tokens, record.overrun_tokens, record.wasted_tokens) == (3, 2, 1)
    assert record.gpu is not None and record.gpu.decode_ns == 2000
    assert (record.gap_clock, unpack_gaps(record.gaps)) == ("engine", [200] * 4)  # the fake's 2 ms, not our arrival
    assert record.ttft_ns is not None and record.ttft_ns < 1_000_000_000
    assert submit.tenant == "acme" and submit.cache_salt and submit.sampling.max_tokens == 8192 - prompt


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_host_that_dies_before_the_first_token_is_followed_by_the_next(start_with, new_host, streamed):
    bad, good = await new_host(Play(fault="die")), await new_host()
    gateway = await start_with(bad, good)
    answer = await ask(gateway, stream=streamed)
    assert answer.status == 200
    first, second = gateway.attempts()
    assert (first.replica, first.outcome, first.usage.output_tokens) == ("e1", "error", 0)
    assert (second.replica, second.reason, second.usage.output_tokens) == ("e2", "fallback", 5)
    [record] = gateway.requests()
    assert (record.outcome, record.replica, record.attempts) == ("ok", "e2", 2)
    assert host_prompts(bad) == host_prompts(good), "the prompt was tokenized differently the second time"


def host_prompts(host: FakeHost) -> list[list[int]]:
    return [submit.token_ids for submit in host.of(Submit)]


@pytest.mark.parametrize("fault", ["die", "error"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_host_lost_in_the_middle_is_continued_by_its_replica_to_the_very_token(
    start_with, new_host, streamed, fault
):
    bad, good = await new_host(Play(tokens=5, fault=fault, after=2)), await new_host(Play(tokens=5))
    gateway = await start_with(bad, good)
    answer = await ask(gateway, stream=streamed)
    text = streamed_text(answer) if streamed else answer.json["choices"][0]["message"]["content"]
    assert text == " one two three four five"
    if streamed:
        assert answer.events[-1] == b"data: [DONE]"
        assert sum(b'"role"' in event for event in answer.events) == 1
    [submit] = good.of(Submit)
    assert submit.generated_ids == [100, 101]
    first, second = gateway.attempts()
    assert (first.outcome, first.usage.output_tokens) == ("error", 2)
    assert (second.reason, second.outcome, second.usage.output_tokens) == ("continuation", "ok", 3)
    [record] = gateway.requests()
    prompt = len(submit.token_ids)
    assert record.usage == Usage(prompt, cache_read_text=0, output_text=5), "the prompt is paid once, the output whole"
    assert len(unpack_gaps(record.gaps)) == 4 and record.gap_clock == "engine"
    assert record.cost_pico_usd == prompt * 1_000_000 + 5 * 2_000_000
    assert record.engine_output_tokens == 5


async def test_an_answer_is_not_continued_by_another_model(start_with, new_host):
    bad = await new_host(Play(fault="die", after=2))
    other = await new_host(models=[builtin_hello(weights_hash="others")])
    gateway = await start_with(bad, other)
    answer = await ask(gateway, stream=True)
    assert b"[DONE]" not in answer.body and b"upstream_broken" in answer.events[-1]
    assert other.of(Submit) == []
    [record] = gateway.requests()
    assert (record.outcome, record.usage.output_tokens, record.count_method) == ("error", 2, "exact")


async def test_an_answer_complete_but_for_its_account_is_complete(start_with, new_host):
    host = await new_host(Play(tokens=3, fault="die", after=3))
    gateway = await start_with(host)
    answer = await ask(gateway, stream=True)
    assert answer.events[-1] == b"data: [DONE]"
    [record] = gateway.requests()
    assert (record.outcome, record.usage.output_tokens, record.count_method) == ("ok", 3, "exact")


@pytest.mark.alone
@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_leaves_is_aborted_within_100_ms_and_billed_what_the_engine_made(
    start_with, new_host, eventually, how, streamed
):
    host = await new_host(Play(tokens=1000, gap_seconds=0.005))
    gateway = await start_with(host)
    client = await gateway.connect()
    await client.send(gateway.request(model="tiny", stream=streamed))
    await eventually(lambda: len(host._made) and max(host._made.values()) > 4)
    host.account_delay = 0.05
    left_at = asyncio.get_running_loop().time()
    getattr(client, how)()
    await eventually(lambda: host.of(Abort), 1.0)
    [aborted_at] = [at for at, message in host.received if isinstance(message, Abort)]
    assert aborted_at - left_at < 0.1
    await eventually(lambda: gateway.requests(), 1.0)
    [record] = gateway.requests()
    made = max(host._made.values())
    assert (record.outcome, record.count_method) == ("cancelled", "exact")
    assert record.usage.output_tokens == record.engine_output_tokens == made + 1
    assert record.gpu is not None and record.gap_clock == "engine"
    assert len(unpack_gaps(record.gaps)) == made
    assert gateway.gateway.admission.in_flight == 0


async def test_a_cut_request_whose_account_never_comes_is_billed_what_arrived(start_with, new_host, eventually):
    host = await new_host(Play(tokens=1000, gap_seconds=0.005))
    host.account_delay = 60
    gateway = await start_with(host)
    client = await gateway.connect()
    await client.send(gateway.request(model="tiny", stream=True))
    await client.head()
    await anext(client.pieces())
    client.close()
    await eventually(lambda: gateway.requests(), 30.0)
    [record] = gateway.requests()
    assert record.outcome == "cancelled" and record.usage.output_tokens >= 1


async def test_a_gateway_starts_and_serves_other_models_while_the_engine_is_away(
    start_gateway, kit, eventually, tmp_path
):
    host = FakeHost(tmp_path / "late.sock")
    config = kit.configuration(("tiny", [engine_target(host)]), ("scripted-1", [kit.scripted()]))
    gateway = await start_gateway(config)
    assert (await gateway.chat()).status == 200
    refused = await ask(gateway)
    assert (refused.status, refused.error["code"]) == (503, "engine_unavailable")
    assert "late.sock is away: No such file" in gateway.reasons[-1]
    ready = await gateway.ask(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
    assert ready.status == 200 and ready.json["engines"]["late"]["state"] == "away"
    await host.start()
    await eventually(lambda: states(gateway) == ["ready"], 3.0)
    assert (await ask(gateway)).status == 200
    await eventually(lambda: gateway.gateway.health()["engines"]["late"]["latency_ms"] is not None)
    await host.stop()
    await eventually(lambda: states(gateway) == ["away"])
    assert (await ask(gateway)).status == 503
    again = await host.start()
    await eventually(lambda: states(gateway) == ["ready"], 3.0)
    assert (await ask(gateway)).status == 200
    await again.stop()


async def test_a_model_that_is_loading_says_how_far_it_is(start_gateway, kit, new_host, eventually):
    host = await new_host(models=[builtin_hello(state="loading", progress=0.43)])
    gateway = await start_gateway(kit.configuration(("tiny", [engine_target(host)])))
    await eventually(lambda: states(gateway) == ["loading"])
    refused = await ask(gateway)
    assert refused.status == 503 and "loading, 43% loaded" in gateway.reasons[-1]
    host.models = [builtin_hello()]
    host.send(host.hello())
    await eventually(lambda: states(gateway) == ["ready"])
    assert (await ask(gateway)).status == 200


async def test_a_tokenizer_that_is_not_what_its_hash_says_is_refused(start_with, new_host):
    host = await new_host(models=[builtin_hello(tokenizer_hash="ab" * 32)])
    gateway = await start_with(host)
    refused = await ask(gateway)
    assert (refused.status, refused.error["code"]) == (503, "engine_unavailable")
    assert "tokenizer" in gateway.reasons[-1] and "abababababab" in gateway.reasons[-1]
    assert host.of(Submit) == []


async def test_a_host_of_another_wire_version_is_refused_and_named(start_gateway, kit, new_host, eventually):
    host = await new_host()
    host.version = 99
    gateway = await start_gateway(kit.configuration(("tiny", [engine_target(host)])))
    host.drop()
    await eventually(lambda: states(gateway) == ["incompatible"], 3.0)
    refused = await ask(gateway)
    assert refused.status == 503 and "version 99" in gateway.reasons[-1]


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff\xff", b"\x03\x00\x00\x00abc"])
async def test_a_host_that_sends_garbage_is_left_and_reached_again(start_with, new_host, eventually, garbage):
    host = await new_host()
    gateway = await start_with(host)
    host.write(garbage)
    await eventually(lambda: host.connections == 2, 3.0)
    await eventually(lambda: states(gateway) == ["ready"])
    assert (await ask(gateway)).status == 200


async def test_a_slow_client_holds_nobody_else_back_and_misses_nothing(start_with, new_host, eventually):
    host = await new_host(Play(tokens=3000, piece="Q" * 1500))
    gateway = await start_with(host)
    slow = await gateway.connect()
    await slow.send(gateway.request(model="tiny", stream=True))
    await slow.head()
    await eventually(lambda: max(host._made.values(), default=0) == 3000)
    quick = await ask(gateway, max_tokens=3)
    assert quick.json["usage"]["completion_tokens"] == 3
    body = b"".join([piece async for piece in slow.pieces()])
    assert body.count(b"Q") == 3000 * 1500 and body.endswith(b"data: [DONE]\n\n")
    await eventually(lambda: len(gateway.requests()) == 2)
    record = max(gateway.requests(), key=lambda one: one.usage.output_tokens or 0)
    assert record.usage.output_tokens == 3000 and unpack_gaps(record.gaps) == [200] * 2999


def step(sequence: int) -> bytes:
    return encode_record(StepRecord(engine="fake-1", sequence=sequence, started_at_ns=1, busy_ns=1))


def journalled(gateway, kind) -> list:
    return [record for record in gateway.records() if isinstance(record, kind)]


async def test_step_records_are_acknowledged_once_they_are_in_the_journal_and_kept_once(
    start_with, new_host, eventually
):
    host = await new_host()
    gateway = await start_with(host)
    await eventually(lambda: host.of(Attach))  # the gateway is ready once it has sent it
    [attach] = host.of(Attach)
    assert attach.wants_steps and attach.wants_kv
    host.send(Steps(records=[step(1), step(2)], last_sequence=11))
    await eventually(lambda: host.of(StepsAck))
    assert [record.sequence for record in journalled(gateway, StepRecord)] == [1, 2]
    # The acknowledgement is lost with the connection: the host sends both again, and a new one.
    host.drop()
    await eventually(lambda: len(host.of(Attach)) == 2, 3.0)
    host.send(Steps(records=[step(1), step(2), step(3)], last_sequence=12))
    await eventually(lambda: len(host.of(StepsAck)) == 2)
    assert [record.sequence for record in journalled(gateway, StepRecord)] == [1, 2, 3]
    assert [ack.sequence for ack in host.of(StepsAck)] == [11, 12]


async def test_step_records_wait_for_room_in_the_journal_and_kv_events_do_not(start_with, new_host, eventually):
    host = await new_host()
    gateway = await start_with(host, journal_max_bytes=1 << 20)
    journal = gateway.gateway.journal
    for size in (60_000, 1_000, 10):
        while journal.append(1, bytes(size)):
            pass
    host.send(Steps(records=[step(1)], last_sequence=1))
    kv = encode_record(KvRecord(engine="fake-1", sequence=1, at_ns=1, event="cleared"))
    host.send(KvEvents(records=[kv]))
    await eventually(lambda: gateway.gateway.engine_records.dropped_kv_records == 1)
    assert host.of(StepsAck) == []
    journal.release(journal.end)
    await eventually(lambda: host.of(StepsAck), 2.0)
    assert [record.sequence for record in journalled(gateway, StepRecord)] == [1]
    host.send(KvEvents(records=[kv]))
    await eventually(lambda: journalled(gateway, KvRecord))


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("invalid_grammar", 400, "invalid_grammar"),
        ("context_length_exceeded", 400, "context_length_exceeded"),
        ("unavailable", 503, "unavailable"),
        ("engine_failure", 502, "engine_failure"),
        ("upstream_timeout", 504, "upstream_timeout"),
    ],
)
async def test_an_engines_refusal_reaches_the_client_under_its_own_name(start_with, new_host, code, status, told):
    host = await new_host(Play(fault="error", finished={"error_code": code, "error_message": "it says why"}))
    gateway = await start_with(host)
    answer = await ask(gateway)
    assert (answer.status, answer.error["code"]) == (status, told)
    assert "it says why" in (answer.error["message"] if answer.status == 400 else gateway.reasons[-1])


async def test_embeddings_are_priced_by_their_input_and_survive_no_host(start_gateway, kit, new_host, eventually):
    model = builtin_hello("mini", kind="embed", context_tokens=16, dimensions=2, chat_template="", template_hash="")
    host = await new_host(models=[model])
    gateway = await start_gateway(kit.configuration(("mini", [engine_target(host)])))
    await eventually(lambda: states(gateway) == ["ready"])
    reply = await gateway.sdk().embeddings.create(model="mini", input=["one", "two three"])
    assert [item.embedding[1] for item in reply.data] == [0.5, 0.5]
    [record] = gateway.requests()
    assert (record.operation, record.api, record.outcome) == ("embeddings", "embeddings", "ok")
    assert record.usage.output_tokens is None and record.usage.input_tokens == reply.usage.prompt_tokens
    assert record.cost_pico_usd == record.usage.input_tokens * 1_000_000
    assert [message for message in gateway.records() if isinstance(message, AttemptRecord)] == []
