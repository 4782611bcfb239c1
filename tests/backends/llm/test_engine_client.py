"""The engine target by itself: addresses, prompts, what a slow client holds, and how a host is shared and left."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.llm.host.engine_address import EngineAddress
from backends.llm.host.engine_hosts import EngineHosts
from backends.llm.host.engine_stream import EngineStream
from backends.llm.host.engine_target import EngineTarget
from backends.llm.host.host_connection import Taking
from backends.llm.host.step_intake import StepIntake
from backends.llm.host_inputs.engine_prompt import prompt_of
from backends.tokenization.tokenizer import PromptFormat
from contracts.api.generation import Continuation
from contracts.engine.wire import Abort, Attach, Delta, Devices, ModelHello, Steps, Submit
from contracts.errors import ConfigurationError, EngineUnavailable, InvalidRequest, UpstreamError
from contracts.recording.records import DeviceRecord, StepRecord, encode_record
from contracts.serving.configuration import TargetSpec
from gateway.apis.reading import read_chat
from tests.backends.llm.engine_fake import FakeHost, Play, builtin_hello


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FakeHost]:
    made = await FakeHost(tmp_path / "h.sock").start()
    yield made
    await made.stop()


def body(**fields: Any) -> bytes:
    return msgspec.json.encode({"model": "tiny", "messages": [{"role": "user", "content": "one two"}], **fields})


def target_of(host: FakeHost, hosts: EngineHosts | None = None, **fields: Any) -> EngineTarget:
    spec = TargetSpec("e", "p", "engine", host.url, **fields)
    return EngineTarget(spec, lambda reference: reference, hosts)


@pytest.fixture
async def target(host: FakeHost, eventually: Callable) -> AsyncIterator[EngineTarget]:
    made = target_of(host)
    await eventually(lambda: made._host.status().state == "ready")
    yield made
    await made.close()


@pytest.mark.parametrize(
    "url", ["", "unix://", "unix:///", "unix://host/path", "/path", "tcp://host", "tcp://:1", "http://a:1"]
)
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ConfigurationError, match="unix:///path"):
        EngineAddress.parse(url)


@pytest.mark.parametrize(
    ("url", "name", "shown"),
    [
        ("unix:///run/engine-default.sock", "default", "/run/engine-default.sock"),
        ("unix:///run/gpu 0.sock", "gpu 0", "/run/gpu 0.sock"),
        ("tcp://10.0.0.1:7000", "10.0.0.1:7000", "10.0.0.1:7000"),
    ],
)
def test_an_address_has_a_name_for_people(url, name, shown):
    address = EngineAddress.parse(url)
    assert (address.name, str(address)) == (name, shown)


async def test_a_target_with_unknown_settings_is_refused(host):
    with pytest.raises(ConfigurationError, match="adaptor"):
        target_of(host, settings={"adaptor": "x"})


async def test_targets_of_one_host_share_its_connection_and_the_last_one_closes_it(host, eventually):
    hosts = EngineHosts()
    first, second = target_of(host, hosts), target_of(host, hosts, model="tiny")
    await eventually(lambda: hosts.status()["h"].state == "ready")
    assert host.connections == 1
    await first.close()
    assert hosts.status()["h"].state == "ready"
    await second.close()
    assert hosts.status() == {}


async def test_a_target_closes_only_when_its_calls_have_ended(host, target, sink, call_of, eventually):
    host.play = Play(tokens=20, gap_seconds=0.01)
    call = asyncio.create_task(target.call(call_of(body()), sink))
    await eventually(lambda: sink.deltas)
    hosts_target = target_of(host, target._hosts)
    await hosts_target.close()
    assert (await call).usage.output_tokens == 20


async def test_a_cancelled_call_gives_its_account_and_still_ends_as_cancelled(host, target, sink, call_of, eventually):
    host.play = Play(tokens=1000, gap_seconds=0.005)
    call = asyncio.create_task(target.call(call_of(body()), sink))
    await eventually(lambda: sink.tokens >= 3)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(host.of(Abort)) == 1
    assert sink.accounted is not None and sink.accounted.usage.output_tokens == sink.tokens + 1
    assert sink.accounted.finish_reason == "abort" and sink.accounted.gap_clock == "engine"


async def test_a_call_cancelled_twice_still_gives_its_account(host, target, sink, call_of, eventually):
    host.play, host.account_delay = Play(tokens=1000, gap_seconds=0.005), 0.1
    call = asyncio.create_task(target.call(call_of(body()), sink))
    await eventually(lambda: sink.deltas)
    call.cancel()
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert sink.accounted is not None and sink.accounted.finish_reason == "abort"


@pytest.mark.parametrize("has_left, is_told", [(False, False), (True, True)])
async def test_an_account_may_take_longer_if_the_client_has_left(
    host, target, sink, call_of, eventually, has_left, is_told
):
    host.play, host.account_delay = Play(tokens=1000, gap_seconds=0.005), 2.0
    call_made = call_of(body())
    call_made.has_client_left = lambda: has_left
    call = asyncio.create_task(target.call(call_made, sink))
    await eventually(lambda: sink.deltas)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert sink.accounted is not None and (sink.accounted.finish_reason == "abort") is is_told


async def test_a_lost_host_leaves_what_another_needs_to_go_on(host, target, sink, call_of):
    host.play = Play(tokens=5, fault="die", after=3)
    with pytest.raises(UpstreamError):
        await target.call(call_of(body()), sink)
    assert sink.accounted is not None
    continuation = sink.accounted.continuation
    assert continuation is not None and continuation.token_ids == (100, 101, 102)
    assert sink.accounted.usage.output_tokens == 3


async def test_only_the_same_model_continues_an_answer(host, target):
    hello = builtin_hello()
    same = Continuation("tiny", (1,), hello.weights_hash, hello.tokenizer_hash, hello.template_hash)
    assert target.can_continue(same)
    for field in ("weights_hash", "tokenizer_hash", "template_hash", "model"):
        assert not target.can_continue(msgspec.structs.replace(same, **{field: "other"}))
    await host.stop()
    host.drop()
    await asyncio.sleep(0.05)
    assert not target.can_continue(same)


async def test_a_host_that_is_away_is_named_with_the_reason(tmp_path, sink, call_of):
    away = target_of(FakeHost(tmp_path / "nobody.sock"))
    await asyncio.sleep(0.02)
    with pytest.raises(EngineUnavailable, match="nobody.sock is away: No such file or directory; start it with"):
        await away.call(call_of(body()), sink)
    assert sink.accounted is not None and sink.accounted.usage.total_tokens == 0
    await away.close()


async def test_parameters_reach_the_engine_as_they_were_given(host, target, sink, call_of):
    fields = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "repetition_penalty": 1.1,
        "seed": 7,
        "min_tokens": 1,
        "ignore_eos": True,
        "stop_token_ids": [9],
    }
    more = {"logit_bias": {"12": 1.5}, "logprobs": True, "top_logprobs": 2, "stop": "end", "max_completion_tokens": 4}
    await target.call(call_of(body(**fields, **more)), sink)
    [submit] = host.of(Submit)
    given = {name: getattr(submit.sampling, name) for name in fields}
    assert given == fields
    assert (submit.sampling.logit_bias, submit.sampling.logprobs, submit.sampling.max_tokens) == ({12: 1.5}, 2, 4)
    assert submit.stop == ["end"] and submit.grammar is None and submit.tenant == "acme"


async def test_defaults_are_openais(host, target, sink, call_of):
    await target.call(call_of(body(top_k=-1, top_p=0)), sink)
    [submit] = host.of(Submit)
    sampling = submit.sampling
    assert (sampling.temperature, sampling.top_k, sampling.n, sampling.seed, sampling.logprobs) == (
        1.0,
        0,
        1,
        None,
        None,
    )
    assert 0 < sampling.top_p < 0.001
    assert sampling.max_tokens == 8192 - len(submit.token_ids)


def form_with(template: str) -> PromptFormat:
    hello = builtin_hello()
    return PromptFormat(hello.tokenizer, template, hello.special_tokens)


TOOL_TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for m in messages %}{% for call in m.tool_calls or [] %}{{ call.function.arguments['a'] }}{% endfor %}"
    "{{ m.content }}{% endfor %}{% if enable_thinking is defined and not enable_thinking %} quick{% endif %}"
)


async def test_tools_and_calls_reach_the_template_as_objects():
    form = form_with(TOOL_TEMPLATE)
    tool = {"type": "function", "function": {"name": "f<b>", "parameters": {}}}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 41}'}}
    messages = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "ok"}]
    sent = body(messages=messages, tools=[tool], reasoning_effort="none", max_tokens=1)
    prompt = await prompt_of(read_chat("application/json", sent), sent, builtin_hello(), form)
    text = '{"type": "function", "function": {"name": "f<b>", "parameters": {}}}41ok quick'
    assert prompt.token_ids == form.encode(text)
    assert msgspec.json.decode(prompt.tools) == [tool]


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('no such role') }}", "{{ messages[5].content }}", "{{ 1 / 0 }}", "{{ ''.__class__.__mro__ }}"],
)
async def test_a_template_that_fails_refuses_the_messages_and_quotes_none_of_them(template):
    form = form_with(template)
    sent = body(messages=[{"role": "user", "content": "secret"}])
    with pytest.raises(InvalidRequest) as refused:
        await prompt_of(read_chat("application/json", sent), sent, builtin_hello(), form)
    assert refused.value.param == "messages" and "secret" not in refused.value.message


def test_a_template_or_tokenizer_that_cannot_be_read_is_refused():
    with pytest.raises(ConfigurationError, match="chat template cannot be read"):
        form_with("{% for %}")
    with pytest.raises(ConfigurationError, match="tokenizer cannot be read"):
        PromptFormat(b"{}", "", {})


def test_short_and_long_texts_are_encoded_alike():
    form = form_with("x")
    text = "Every word has a meaning. " * 400 + "<|end|>"
    assert form.encode(text) == form._tokenizer.encode(text, add_special_tokens=False).ids


async def test_a_model_without_a_template_takes_no_chats():
    sent = body()
    with pytest.raises(InvalidRequest, match="no chat template"):
        await prompt_of(read_chat("application/json", sent), sent, builtin_hello(), form_with(""))


async def test_rendering_takes_text_parts_and_names_what_is_none(host):
    form = form_with("{{ messages[0].content }}")
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    sent = body(messages=[{"role": "user", "content": parts}])
    prompt = await prompt_of(read_chat("application/json", sent), sent, builtin_hello(), form)
    assert prompt.token_ids == form.encode("one\ntwo")
    sent = body(messages=[{"role": "user", "content": [*parts, {"type": "input_audio", "input_audio": {}}]}])
    with pytest.raises(InvalidRequest) as refused:
        await prompt_of(read_chat("application/json", sent), sent, builtin_hello(), form)
    assert refused.value.param == "messages[0].content[2].type"


PIECES = st.lists(
    st.tuples(st.integers(0, 2), st.text(max_size=3), st.booleans(), st.sampled_from(["", "pause", "resume"]))
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # a class, of which each example makes its own
@given(PIECES)
async def test_holding_and_releasing_loses_no_text_no_token_and_no_time(new_sink, pieces):
    sink = new_sink()
    stream = EngineStream(sink, 3, 3)
    expected: dict[int, tuple[str, list[int]]] = {}
    for number, (index, text, calls, flow) in enumerate(pieces):
        if flow:
            getattr(stream, flow)()
        tool_calls = b'[{"index":%d}]' % number if calls else b""
        stream.on_delta(
            Delta(
                request_id=b"r", index=index, token_ids=[number], times_ns=[number], content=text, tool_calls=tool_calls
            )
        )
        known_text, known_times = expected.get(index, ("", []))
        expected[index] = (known_text + text, [*known_times, number])
    stream.resume()
    for index, (text, times) in expected.items():
        mine = [delta for delta in sink.deltas if delta.index == index]
        assert "".join(delta.text for delta in mine) == text
        assert [time for delta in mine for time in delta.times_ns] == times
        assert sum(delta.tokens for delta in mine) == len(times)
    calls = [
        call["index"] for delta in sink.deltas if delta.tool_calls for call in msgspec.json.decode(delta.tool_calls)
    ]
    assert sorted(calls) == [number for number, piece in enumerate(pieces) if piece[2]]
    stream._done.cancel()


class Keeper:
    def __init__(self) -> None:
        self.has_room = True
        self.steps: list[bytes] = []

    def take_steps(self, packed) -> bool:
        if self.has_room:
            self.steps += packed
        return self.has_room

    def take_kv(self, packed) -> None:
        raise AssertionError("no KV event was sent")


def step(engine: str, sequence: int) -> bytes:
    return encode_record(StepRecord(engine=engine, sequence=sequence, started_at_ns=0, busy_ns=0))


async def test_steps_are_written_once_for_each_engine_and_in_order(eventually):
    keeper = Keeper()
    acknowledged: list[int] = []
    intake = StepIntake(keeper)
    intake.take(Steps(records=[step("a", 0), step("b", 0), step("a", 1)], last_sequence=3), acknowledged.append)
    intake.take(Steps(records=[step("a", 1), step("b", 1), b"junk"], last_sequence=6), acknowledged.append)
    assert keeper.steps == [step("a", 0), step("b", 0), step("a", 1), step("b", 1)]
    assert acknowledged == [3, 6] and intake.unreadable_records == 1
    keeper.has_room = False
    intake.take(Steps(records=[step("a", 2)], last_sequence=7), acknowledged.append)
    intake.take(Steps(records=[step("a", 3)], last_sequence=8), acknowledged.append)
    assert acknowledged == [3, 6]
    keeper.has_room = True
    await eventually(lambda: acknowledged == [3, 6, 7, 8], 2.0)
    assert keeper.steps[-2:] == [step("a", 2), step("a", 3)]


async def test_looks_at_gpus_are_asked_for_and_kept_as_far_as_there_is_room(host, eventually):
    class Kept(Keeper):
        def __init__(self) -> None:
            super().__init__()
            self.looks: list[bytes] = []

        def take_kv(self, packed) -> None:
            self.looks += packed

    keeper = Kept()
    hosts = EngineHosts(Taking("g", keeper))
    target = target_of(host, hosts)
    await eventually(lambda: hosts.status()["h"].state == "ready")
    await eventually(lambda: host.of(Attach))  # the target is ready once it has sent it
    (attach,) = host.of(Attach)
    assert (attach.wants_devices, attach.wants_kv) == (True, False)
    look = encode_record(DeviceRecord(host="h", sequence=1, at_ns=1, device="GPU-1"))
    host.send(Devices(records=[look]))
    await eventually(lambda: keeper.looks == [look])
    await target.close()


async def test_a_model_sent_twice_is_parsed_once(host, eventually):
    hosts = EngineHosts()
    target = target_of(host, hosts)
    await eventually(lambda: hosts.status()["h"].state == "ready")
    model: ModelHello = target._host.model("tiny")
    first = await hosts.formats.get(model)
    host.send(host.hello())
    await asyncio.sleep(0.05)
    assert await hosts.formats.get(target._host.model("tiny")) is first
    await target.close()
