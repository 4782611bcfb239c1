"""What model servers report of usage, in every shape they do: who is believed, what is estimated, what is charged."""

import time
from typing import Any

import pytest

from contracts.metering.gaps import unpack_gaps
from tests.gateway.model_server import Upstream

up = Upstream
LIMIT = {"tenant": "acme", "level": "tenant", "metric": "tokens", "window": "hour", "amount": 1_000_000}
DONE = up.event(b"[DONE]")
TEXT = [up.chunk("Hel"), up.chunk("lo"), up.chunk(finish="stop")]  # two tokens, as far as can be seen


def report(prompt: object = 10, completion: object = 2, **more: object) -> dict[str, object]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, **more}


def usage_chunk(usage: object, **more: object) -> bytes:
    return up.event({"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": usage, **more})


# Reports that are believed: what they say, leaf by leaf. Leaves not named are unknown.
BELIEVED: dict[str, tuple[object, dict[str, int]]] = {
    "two counts": (report(), {"input_text": 10, "output_text": 2}),
    "with a total": (report(total_tokens=12), {"input_text": 10, "output_text": 2}),
    "with a total that is too small": (report(total_tokens=3), {"input_text": 10, "output_text": 2}),
    "null details": (
        report(prompt_tokens_details=None, completion_tokens_details=None),
        {"input_text": 10, "output_text": 2},
    ),
    "empty details": (
        report(prompt_tokens_details={}, completion_tokens_details={}),
        {"input_text": 10, "output_text": 2},
    ),
    "details that are null": (
        report(prompt_tokens_details={"cached_tokens": None}, completion_tokens_details={"reasoning_tokens": None}),
        {"input_text": 10, "output_text": 2},
    ),
    "details that are zero": (
        report(prompt_tokens_details={"cached_tokens": 0}, completion_tokens_details={"reasoning_tokens": 0}),
        {"input_text": 10, "cache_read_text": 0, "output_text": 2, "output_reasoning": 0},
    ),
    "all of it cached, all of it reasoning": (
        report(prompt_tokens_details={"cached_tokens": 10}, completion_tokens_details={"reasoning_tokens": 2}),
        {"input_text": 0, "cache_read_text": 10, "output_text": 0, "output_reasoning": 2},
    ),
    "reasoning beside the completion": (
        report(total_tokens=19, completion_tokens_details={"reasoning_tokens": 7}),
        {"input_text": 10, "output_text": 2, "output_reasoning": 7},
    ),
    "fields nobody knows": (report(vendor={"a": [1]}, queue_time=0.5), {"input_text": 10, "output_text": 2}),
    "nothing of the output": ({"prompt_tokens": 10, "completion_tokens": None}, {"input_text": 10}),
    "the most there can be": (report(2**32 - 1, 2), {"input_text": 2**32 - 1, "output_text": 2}),
}

# Reports that cannot be true, or cannot be read: the answer stands, and its usage is estimated and marked so.
NOT_BELIEVED: dict[str, object] = {
    "none": None,
    "an empty one": {},
    "negative": report(-10),
    "negative output": report(10, -2),
    "huge": report(10**18),
    "one more than there can be": report(2**32),
    "of a hundred digits": report(10**100),
    "strings": report("10", "2"),
    "fractions": report(10.5, 2),
    "booleans": report(True, False),
    "a list": [10, 2],
    "a string": "ten",
    "a number": 12,
    "more cached than prompt": report(prompt_tokens_details={"cached_tokens": 11}),
    "more reasoning than output": report(completion_tokens_details={"reasoning_tokens": 3}),
    "details of another type": report(prompt_tokens_details=[1]),
    "negative details": report(prompt_tokens_details={"cached_tokens": -1}),
    "reasoning that does not fit the total": report(total_tokens=19, completion_tokens_details={"reasoning_tokens": 6}),
}

# Where a stream reports: after, on, or between its chunks, once or again and again. All mean 10 in and 2 out.
PLACES: dict[str, list[bytes]] = {
    "in a chunk of its own": [*TEXT, usage_chunk(report())],
    "in a chunk whose choices are null": [*TEXT, up.event({"choices": None, "usage": report()})],
    "in a chunk without choices": [*TEXT, up.event({"usage": report()})],
    "twice": [*TEXT, usage_chunk(report()), usage_chunk(report())],
    "on the last chunk with content": [up.chunk("Hel"), up.chunk("lo", finish="stop", usage=report())],
    "on the chunk with the end": [*TEXT[:2], up.chunk(finish="stop", usage=report())],
    "on the end, and again in its own": [*TEXT[:2], up.chunk(finish="stop", usage=report()), usage_chunk(report())],
    "on every chunk, growing": [
        up.chunk("Hel", usage=report(10, 1)),
        up.chunk("lo", usage=report(10, 2)),
        up.chunk(finish="stop", usage=report(10, 2)),
        usage_chunk(report(10, 2)),
    ],
    "on every chunk, null but the last": [
        *[up.event({"choices": [{"index": 0, "delta": {"content": text}}], "usage": None}) for text in ("Hel", "lo")],
        up.chunk(finish="stop", usage=None),
        usage_chunk(report()),
    ],
    "before the text, empty": [usage_chunk(report(0, 0)), *TEXT, usage_chunk(report())],
    "good, then null": [*TEXT, usage_chunk(report()), up.event({"choices": [], "usage": None})],
    "good, then one that cannot be true": [*TEXT, usage_chunk(report()), usage_chunk(report(-1, -1))],
    "good, then one that cannot be read": [*TEXT, usage_chunk(report()), usage_chunk("ten")],
    "before the end": [*TEXT[:2], usage_chunk(report()), TEXT[2]],
}


@pytest.fixture
async def mock(start_gateway, kit, upstream):
    """A gateway before one model server, with a limit on tokens."""
    return await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)]), limits=[LIMIT]))


def charged(gateway) -> int:
    counters = gateway.gateway.counters.windows()
    return sum(amount for counter in counters for _, amount in counter.charges(time.time_ns()))


async def ask(gateway, *, is_streamed: bool = True, **fields: Any):
    """Ask once; return the answer, its record, and what was charged for it."""
    before = charged(gateway)
    answer = await gateway.chat(model="mock", stream=is_streamed, max_tokens=50, **fields)
    [*_, record] = gateway.requests()
    return answer, record, charged(gateway) - before


def leaves(record) -> dict[str, int]:
    return dict(record.usage.reported())


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "stream"])
async def test_a_report_is_taken_at_its_word_and_apart_into_leaves(mock, upstream, subtests, is_streamed):
    for name, (usage, expected) in BELIEVED.items():
        with subtests.test(name):
            events = [*TEXT, usage_chunk(usage), DONE]
            upstream.always(up.streamed(*events) if is_streamed else up.whole(up.completion(usage=usage)))
            answer, record, charge = await ask(mock, is_streamed=is_streamed)
            assert answer.status == 200 and (leaves(record), record.count_method) == (expected, "reported")
            if len(expected) > 1:
                assert charge == min(sum(expected.values()), 1_000_000) or charge == record.reserved_tokens
            assert b'"usage"' not in answer.body or not is_streamed


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "stream"])
async def test_a_report_that_cannot_be_true_costs_no_answer_and_is_replaced_by_a_marked_estimate(
    mock, upstream, subtests, is_streamed
):
    for name, usage in NOT_BELIEVED.items():
        with subtests.test(name):
            events = [*TEXT, *([] if usage is None else [usage_chunk(usage)]), DONE]
            upstream.always(up.streamed(*events) if is_streamed else up.whole(up.completion(usage=usage)))
            answer, record, _ = await ask(mock, is_streamed=is_streamed)
            assert answer.status == 200 and (record.outcome, record.count_method) == ("ok", "estimate")
            assert record.usage.input_tokens == pytest.approx(record.request_bytes / 4, abs=8)
            assert record.usage.output_tokens == 2  # counted as they passed, or by the size of what was said
            if is_streamed:
                assert answer.events == [event.strip() for event in [*TEXT, DONE]], "a report nobody asked for"


async def test_a_report_counts_once_wherever_a_stream_puts_it(mock, upstream, subtests):
    for name, events in PLACES.items():
        with subtests.test(name):
            upstream.always(up.streamed(*events, DONE))
            answer, record, charge = await ask(mock)
            assert answer.events[-1] == b"data: [DONE]"
            assert (leaves(record), record.count_method) == ({"input_text": 10, "output_text": 2}, "reported")
            assert (charge, record.cost_pico_usd) == (12, 10 * 1_000_000 + 2 * 2_000_000)
            assert len(unpack_gaps(record.gaps)) == 1
            wanted, _, _ = await ask(mock, stream_options={"include_usage": True})
            assert wanted.body == b"".join([*events, DONE]), "who asks gets every byte"


async def test_usage_is_asked_for_on_every_stream_and_on_nothing_else(mock, upstream):
    upstream.then(up.streamed(*TEXT, usage_chunk(report()), DONE))
    upstream.always(up.whole(up.completion()))
    await ask(mock)
    await ask(mock, is_streamed=False)
    streamed, whole = (request.json for request in upstream.requests)
    assert streamed["stream_options"] == {"include_usage": True} and "stream_options" not in whole


async def test_an_output_of_none_is_not_believed_where_tokens_have_passed(mock, upstream):
    upstream.always(up.streamed(*TEXT, usage_chunk(report(10, 0)), DONE))
    _, record, charge = await ask(mock)
    assert (leaves(record), record.count_method) == ({"input_text": 10, "output_text": 2}, "estimate")
    assert charge == 12


BUDGET = {"id": "bud", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "1"}
ZEROS = {"all": report(0, 0), "output": report(10, 0), "input": report(0, 2)}


@pytest.mark.parametrize("rules", [{}, {"limits": [LIMIT]}, {"budgets": [BUDGET]}], ids=["free", "limit", "budget"])
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("zero", ZEROS)
async def test_counts_of_zero_beside_a_prompt_and_a_text_are_replaced_by_marked_estimates(
    start_gateway, kit, upstream, zero, is_streamed, rules
):
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)]), **rules))
    usage = ZEROS[zero]
    events = [*TEXT, usage_chunk(usage), DONE]
    upstream.always(up.streamed(*events) if is_streamed else up.whole(up.completion("Hi there", usage=usage)))
    for _ in range(14):
        await ask(gateway, is_streamed=is_streamed)
    records = gateway.requests()
    assert len(records) == 14
    for record in records:
        tokens_in = 10 if zero == "output" else pytest.approx(record.request_bytes / 4, abs=8)
        assert (record.outcome, record.count_method) == ("ok", "estimate")
        assert (record.usage.input_tokens, record.usage.output_tokens) == (tokens_in, pytest.approx(2, abs=1))
        assert record.usage.output_tokens
        cost = record.usage.input_tokens * 1_000_000 + record.usage.output_tokens * 2_000_000
        assert record.cost_pico_usd == record.charged_pico_usd == cost


@pytest.mark.parametrize("said", ["reasoning_content", "reasoning", "refusal", "tool_calls"])
async def test_an_output_of_zero_is_not_believed_whatever_a_whole_answer_says(mock, upstream, said):
    value = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = {"role": "assistant", "content": None, said: value if said == "tool_calls" else "some thought of it"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    upstream.always(up.whole(up.completion(usage=report(10, 0), choices=[choice])))
    _, record, _ = await ask(mock, is_streamed=False)
    assert record.count_method == "estimate" and record.usage.output_tokens > 1 and record.usage.input_tokens == 10


async def test_an_input_of_zero_is_not_believed_of_embeddings(mock, upstream):
    body = {"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}]}
    upstream.always(up.whole(body | {"usage": {"prompt_tokens": 0, "total_tokens": 0}}))
    answer = await mock.ask(mock.request({"model": "mock", "input": "some words"}, path="/v1/embeddings"))
    [record] = mock.requests()
    assert answer.status == 200 and record.count_method == "estimate"
    assert record.usage.input_tokens == pytest.approx(record.request_bytes / 4, abs=8)
    assert record.cost_pico_usd == record.usage.input_tokens * 1_000_000


@pytest.mark.parametrize("prompt", ["", [""]])
async def test_an_input_of_zero_is_believed_of_a_prompt_of_nothing(mock, upstream, prompt):
    body = {"id": "x", "object": "text_completion", "model": "m", "usage": report(0, 1)}
    upstream.always(up.whole(body | {"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}))
    answer = await mock.ask(mock.request({"model": "mock", "prompt": prompt}, path="/v1/completions"))
    [record] = mock.requests()
    assert answer.status == 200 and (leaves(record), record.count_method) == (
        {"input_text": 0, "output_text": 1},
        "reported",
    )


async def test_a_whole_answer_of_nothing_that_reports_nothing_is_believed(mock, upstream):
    upstream.always(up.whole(up.completion("", usage=report(10, 0))))
    _, record, charge = await ask(mock, is_streamed=False)
    assert (leaves(record), record.count_method, charge) == ({"input_text": 10, "output_text": 0}, "reported", 10)


async def test_an_answer_of_nothing_that_reports_nothing_is_believed(mock, upstream):
    upstream.always(up.streamed(up.chunk(finish="stop"), usage_chunk(report(10, 0)), DONE))
    _, record, charge = await ask(mock)
    assert (leaves(record), record.count_method, charge) == ({"input_text": 10, "output_text": 0}, "reported", 10)


CUTS: dict[str, tuple[list[bytes], str, int | None, int]] = {
    "before anything": ([], "estimate", None, 0),
    "after two tokens": (TEXT[:2], "estimate", None, 2),
    "after a report of one of two tokens": (
        [up.chunk("Hel", usage=report(10, 1)), up.chunk("lo", usage=report(10, 2))], "reported", 10, 2
    ),
    "after a report of none": ([up.chunk("Hel", usage=report(10, 0)), up.chunk("lo")], "estimate", 10, 2),
    "after all but [DONE]'s end": ([*TEXT[:2], usage_chunk(report())], "reported", 10, 2),
}  # fmt: skip


async def test_a_stream_that_is_cut_is_billed_for_what_was_generated(mock, upstream, subtests):
    for name, (events, method, tokens_in, tokens_out) in CUTS.items():
        with subtests.test(name):
            upstream.always(up.stream_head() + b"".join(map(up.piece, events)), 0.02, up.CLOSE)
            _, record, charge = await ask(mock)
            assert (record.outcome, record.count_method) == ("error", method)
            if method == "none":
                assert not record.usage.is_known and record.cost_pico_usd is None
                assert charge == record.reserved_tokens, "unknown is not free"
                continue
            assert record.usage.output_tokens == tokens_out and tokens_in in (None, record.usage.input_tokens)
            assert charge == record.usage.total_tokens
            assert record.cost_pico_usd == record.usage.input_tokens * 1_000_000 + tokens_out * 2_000_000


async def test_what_was_refused_is_counted_apart_and_used_nothing(start_gateway, kit, upstream):
    limits = [{**LIMIT, "metric": "requests", "amount": 1}]
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)]), limits=limits))
    upstream.always(up.whole(up.completion()))
    assert (await gateway.chat(model="mock")).status == 200
    assert (await gateway.chat(model="mock")).status == 429
    assert (await gateway.chat(model="unknown")).status == 404
    assert (await gateway.chat(model="mock", max_tokens="many")).status == 400
    served, *refused = gateway.requests()
    assert (served.outcome, served.usage.total_tokens) == ("ok", 5)
    assert [(one.outcome, one.usage.is_known, one.cost_pico_usd) for one in refused] == [("rejected", False, 0)] * 3
    assert len(upstream.requests) == 1
    page = (await gateway.ask(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")).body.decode()
    assert sum(1 for line in page.splitlines() if 'outcome="rejected"' in line) > 0


STATED: dict[str, tuple[dict[str, object], str]] = {
    "OpenRouter": ({"cost": 0.00014}, '{"cost":0.00014}'),
    "xAI": ({"cost_in_usd_ticks": 37756000}, '{"cost_in_usd_ticks":37756000}'),
    "nothing": ({"cost": 0}, '{"cost":0}'),
    "no amount": ({"cost": "much"}, ""),
    "below nothing": ({"cost": -1, "cost_in_usd_ticks": True}, ""),
}


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "stream"])
async def test_a_cost_that_the_provider_states_is_kept_beside_our_own(mock, upstream, subtests, is_streamed):
    for name, (stated, kept) in STATED.items():
        with subtests.test(name):
            usage = report(**stated)
            events = [*TEXT, usage_chunk(usage), DONE]
            upstream.always(up.streamed(*events) if is_streamed else up.whole(up.completion(usage=usage)))
            for _ in range(3):  # the first by itself, others by their plan
                answer, record, _ = await ask(mock, is_streamed=is_streamed)
                assert answer.status == 200 and record.provider_usage == kept
                assert leaves(record) == {"input_text": 10, "output_text": 2}
                assert record.cost_pico_usd == 10 * 1_000_000 + 2 * 2_000_000
