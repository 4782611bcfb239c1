"""Text completions at an engine host: what each prompt becomes, and several of them as one call."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from backends.engine.settings import BUILTIN_PATH
from backends.llm.base import ModelCall
from backends.llm.host_inputs.engine_completion import prompts_of
from backends.tokenization.tokenizer import PromptFormat
from contracts.engine.wire import Abort, Submit
from contracts.errors import EngineUnavailable, InvalidRequest, UpstreamError
from contracts.recording.ids import sibling_of
from gateway.apis.reading import read_completion
from tests.backends.llm.engine_fake import FakeHost, Play, builtin_hello, replace_struct

REQUEST_ID = UUID(int=7)


def body(**fields: Any) -> bytes:
    return msgspec.json.encode({"model": "tiny", "prompt": [[5, 6, 7], [8, 9]], **fields})


def call(**fields: Any) -> ModelCall:
    sent = body(**fields)
    request = read_completion("application/json", sent)
    return ModelCall(REQUEST_ID, "/completions", request, sent, "acme", "salt")


def framing_tokenizer() -> bytes:
    """The built-in tokenizer, made to begin every text with token 1, as many models' do."""
    tokenizer = Tokenizer.from_file(str(BUILTIN_PATH / "tokenizer.json"))
    first = tokenizer.id_to_token(1)
    tokenizer.post_processor = TemplateProcessing(single=f"{first} $A", special_tokens=[(first, 1)])
    return tokenizer.to_str().encode()


async def prompts(form: PromptFormat | None = None, **fields: Any):
    sent = body(**fields)
    form = form or PromptFormat(builtin_hello().tokenizer, "", {})
    return await prompts_of(read_completion("application/json", sent), sent, builtin_hello(), form)


async def test_a_text_gets_the_special_tokens_that_its_tokenizer_frames_it_with_and_ids_get_none() -> None:
    form = PromptFormat(framing_tokenizer(), "", {})
    bare = Tokenizer.from_file(str(BUILTIN_PATH / "tokenizer.json")).encode("a bridge").ids
    [by_text, by_ids, empty] = await prompts(form, prompt=["a bridge", bare, ""])
    assert (by_text.token_ids, by_ids.token_ids, empty.token_ids) == ([1, *bare], bare, [1])


@pytest.mark.parametrize(
    ("prompt_tokens", "max_tokens", "sent"),
    [(8, None, 16), (8192 - 17, None, 16), (8192 - 16, None, 16), (8192 - 15, None, 15), (8191, None, 1), (8191, 1, 1)],
)
async def test_the_default_gives_way_to_what_the_context_leaves(prompt_tokens, max_tokens, sent) -> None:
    [prompt] = await prompts(prompt=[5] * prompt_tokens, max_tokens=max_tokens)
    assert prompt.sampling.max_tokens == sent


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"prompt": [[5], [5] * 8192]}, "prompt", ["8192 tokens", "8192"]),
        ({"prompt": [5] * 8000, "max_tokens": 193}, "max_tokens", ["max_tokens is 193"]),
        ({"prompt": [[5], [4096]]}, "prompt", ["prompt[1] holds the token id 4096", "0 to 4095"]),
        ({"prompt": ""}, "prompt", ["prompt is empty"]),
        ({"best_of": 2}, "best_of", ["best_of is 2", "1 at most"]),
        ({"echo": True}, "echo", ["echo is not supported"]),
        ({"suffix": "x"}, "suffix", ["suffix is not supported"]),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(fields, param, words) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await prompts(**fields)
    assert refused.value.param == param
    assert all(word in refused.value.message for word in words), refused.value.message


async def test_a_model_that_embeds_does_not_complete() -> None:
    sent = body()
    hello = builtin_hello(kind="embed")
    with pytest.raises(InvalidRequest, match="does not complete"):
        await prompts_of(read_completion("application/json", sent), sent, hello, PromptFormat(hello.tokenizer, "", {}))


# several prompts at a host


class UnevenHost(FakeHost):
    """Fails the prompt that begins with a token; plays the rest."""

    failing_token = -1

    async def _answer(self, submit: Submit) -> None:
        if submit.token_ids[0] != self.failing_token:
            return await super()._answer(submit)
        await asyncio.sleep(0.02)
        account = self.finished(submit, 0, "error")
        self.send(replace_struct(account, error_code="engine_failure", error_message="the step failed"))


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[FakeHost]:
    made = await UnevenHost(tmp_path / "h.sock").start()
    yield made
    await made.stop()


async def test_prompts_are_submitted_each_with_an_id_of_its_own_and_summed_up(host, target, sink) -> None:
    result = await target.call(call(n=2, max_tokens=3), sink)
    first, second = host.of(Submit)
    assert [first.token_ids, second.token_ids] == [[5, 6, 7], [8, 9]]
    assert [first.request_id, second.request_id] == [REQUEST_ID.bytes, sibling_of(REQUEST_ID, 1).bytes]
    assert {one.sampling.n for one in (first, second)} == {2} and not first.parse_reasoning
    assert (result.usage.input_tokens, result.usage.output_tokens, result.count_method) == (5, 6, "exact")
    assert (result.finish_reason, result.recompute_tokens, result.queue_ns) == ("length", 6, 4_000_000)
    assert result.gpu is not None and (result.gpu.prefill_ns, result.gpu.decode_ns) == (2000, 4000)
    assert {delta.index for delta in sink.deltas} == {0, 2}, "the second prompt's choices follow the first's"
    assert sink.accounted is None


async def test_a_cold_start_is_told_with_the_result_and_absent_where_there_was_none(host, target, sink) -> None:
    assert (await target.call(call(n=1, max_tokens=3), sink)).cold_start_ns is None
    host.play.finished["cold_start_ns"] = 350_000_000
    assert (await target.call(call(n=1, max_tokens=3), sink)).cold_start_ns == 350_000_000


async def test_prompts_are_counted_together_and_encoded_once(target) -> None:
    counted = call(prompt=["a bridge", "a"])
    assert await target.count_input(counted) == 4
    [prepared] = counted.prepared.values()
    assert isinstance(prepared, list) and sum(len(one.token_ids) for one in prepared) == 4


async def test_where_one_prompt_fails_the_others_are_stopped_and_all_are_accounted_for(host, target, sink) -> None:
    host.play, host.failing_token = Play(tokens=1000, gap_seconds=0.002), 8
    with pytest.raises(UpstreamError, match="the step failed"):
        await target.call(call(max_tokens=1000), sink)
    [stopped] = host.of(Abort)
    assert stopped.request_id == REQUEST_ID.bytes
    assert sink.accounted.count_method == "exact"
    assert sink.accounted.usage.input_tokens == 5 and sink.accounted.usage.output_tokens == sink.tokens + 1
    assert sink.accounted.continuation is None


async def test_a_cancelled_call_stops_every_prompt_and_gives_one_account(host, target, sink, eventually) -> None:
    host.play = Play(tokens=1000, gap_seconds=0.002)
    task = asyncio.create_task(target.call(call(max_tokens=1000), sink))
    await eventually(lambda: sink.tokens >= 6)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(host.of(Abort)) == 2
    assert sink.accounted.count_method == "exact" and sink.accounted.usage.output_tokens == sink.tokens + 2


async def test_a_single_answer_that_a_host_leaves_unfinished_goes_on_at_another(host, target, sink, eventually) -> None:
    host.play = Play(tokens=5, fault="die", after=2)
    with pytest.raises(UpstreamError):
        await target.call(call(prompt=[5, 6, 7], max_tokens=5), sink)
    continuation = sink.accounted.continuation
    assert continuation is not None and continuation.token_ids == (100, 101)
    host.play = Play(tokens=5)
    await eventually(lambda: target.can_continue(continuation))
    rest = call(prompt=[5, 6, 7], max_tokens=5)
    rest.continuation = continuation
    result = await target.call(rest, sink)
    assert host.of(Submit)[-1].generated_ids == [100, 101]
    assert result.usage.output_tokens == 3 and sink.tokens == 5


async def test_a_host_that_is_away_used_nothing(host, target, sink, eventually) -> None:
    prepared = call()
    await target.count_input(prepared)
    await host.stop()
    await eventually(lambda: target._host.status().state == "away")
    with pytest.raises(EngineUnavailable):
        await target.call(prepared, sink)
    assert sink.accounted.usage.total_tokens == 0


async def test_a_slow_client_holds_every_prompt_back_and_is_told_of_all_that_waits(
    host, target, sink, eventually
) -> None:
    host.play = Play(tokens=40, gap_seconds=0.001)
    held: list[tuple[int, int]] = []
    slow = call(max_tokens=40)
    slow.on_held = lambda *found: held.append(found)
    task = asyncio.create_task(target.call(slow, sink))
    await eventually(lambda: sink.tokens >= 4)
    pause, resume = sink.flow
    pause()
    passed = sink.tokens
    await eventually(lambda: held and held[-1][0] >= 20)
    assert sink.tokens == passed
    resume()
    result = await task
    assert held[-1] == (0, 0) and max(held)[0] >= 20
    assert sink.tokens == result.usage.output_tokens == 80
