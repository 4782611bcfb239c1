"""A model server that ignores max_tokens: what its clients get, what is recorded, and what budgets show of it."""

import asyncio
import json
import logging

import pytest

MADE = 300  # tokens that the server makes, whatever it is asked
WORDS = [f"word{place:03d}" for place in range(MADE)]
TRACED = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}  # such a request takes the general path
PATTERNS = ("burst", "paced", "several", "split", "giant")
BUDGET = {"id": "bud", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "0.0001"}
WIDE = BUDGET | {"amount_usd": "1"}
LIMIT = {"id": "lim", "tenant": "acme", "level": "tenant", "metric": "tokens", "window": "minute", "amount": 60}
PATHS = {
    "chat": ("/v1/chat/completions", {}),
    "completions": ("/v1/completions", {"prompt": "say", "messages": None}),
    "messages": ("/v1/messages", {}),
    "responses": ("/v1/responses", {"input": "say", "messages": None}),
}


def texts(pattern, made=MADE):
    """Return the text of each chunk, a word a token."""
    several = {"several": 8, "giant": made}.get(pattern, 1)
    return [" ".join(WORDS[at : min(at + several, made)]) + " " for at in range(0, made, several)]


def script(upstream, pattern, made=MADE, *, finish="stop", field="content", after=(), reports=True, is_text=False):
    """Return what the server plays for a stream."""

    def event(text):
        if is_text:
            return upstream.event({"id": "x", "choices": [{"index": 0, "text": text, "finish_reason": None}]})
        return upstream.event({"id": "x", "choices": [{"index": 0, "delta": {field: text}, "finish_reason": None}]})

    events = [*map(event, texts(pattern, made)), *after, upstream.chunk(finish=finish)]
    if reports:
        events.append(upstream.usage(10, made))
    events.append(upstream.event(b"[DONE]"))
    if pattern == "split":
        data = upstream.stream_head() + b"".join(map(upstream.piece, events)) + upstream.END
        steps = []
        for at in range(0, len(data), 97):
            steps += [data[at : at + 97], 0.0]
        return steps
    if pattern == "paced":
        return [
            upstream.stream_head(),
            *[step for one in events for step in (upstream.piece(one), 0.003)],
            upstream.END,
        ]
    return [upstream.stream_head() + b"".join(map(upstream.piece, events)) + upstream.END]


def delivered(answer):
    """Return how many of the server's tokens a client got, in whichever API's words."""
    return sum(word.encode() in answer.body for word in WORDS)


def standing(gateway, rule="bud"):
    """Return what a budget has settled, and its overdraft, in pico-USD."""
    snapshot, counters = gateway.gateway.directory.snapshot, gateway.gateway.counters
    [budget] = [one for one in snapshot.budgets if one.id == rule]
    counter = counters.open(budget, "")
    return counter.settled, counter.overdraft


async def ask(gateway, *, is_general=False, api="chat", **fields):
    path, more = PATHS[api]
    body = {"model": "scripted-1", "messages": [{"role": "user", "content": "say"}], "stream": True, **more, **fields}
    body = {name: value for name, value in body.items() if value is not None}
    return await gateway.ask(gateway.request(body, TRACED if is_general else None, path=path))


@pytest.fixture
def start(start_gateway, kit, upstream):
    async def start(**more):
        return await start_gateway(kit.configuration(("scripted-1", [kit.http_target(upstream.url)]), **more))

    return start


@pytest.mark.parametrize("is_general", [False, True])
@pytest.mark.parametrize("rules", [{}, {"budgets": [WIDE]}, {"limits": [LIMIT | {"amount": 100_000}]}])
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_no_token_is_delivered_beyond_the_callers_max_tokens(start, upstream, pattern, rules, is_general):
    gateway = await start(**rules)
    upstream.always(*script(upstream, pattern))
    answer = await ask(gateway, is_general=is_general, max_tokens=20)
    assert delivered(answer) == 20 and WORDS[19].encode() in answer.body
    assert b'"finish_reason":"length"' in answer.body and b"output_limit_reached" in answer.body
    assert answer.body.endswith(b"data: [DONE]\n\n")
    [record] = gateway.requests()
    assert (record.outcome, record.finish_reason) == ("ok", "length")
    assert record.overdraft_tokens == record.usage.output_tokens - 20 > 0
    if pattern in ("burst", "several", "giant"):
        assert record.usage.output_tokens == MADE, "the server's own report, which had come as well"
    if "budgets" in rules:
        assert sum(standing(gateway)) == record.cost_pico_usd


@pytest.mark.parametrize("is_general", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_no_token_is_delivered_beyond_what_a_hard_budget_pays(start, upstream, pattern, is_general):
    gateway = await start(budgets=[BUDGET])
    upstream.always(*script(upstream, pattern))
    answer = await ask(gateway, is_general=is_general)
    most = int(answer.headers["x-tollkeeper-max-tokens"])
    assert 0 < most < 60 and delivered(answer) == most
    assert b'"finish_reason":"length"' in answer.body and b"ended_by" in answer.body
    [record] = gateway.requests()
    settled, overdraft = standing(gateway)
    assert settled <= 100_000_000, "charges never exceed a hard budget"
    assert settled + overdraft == record.cost_pico_usd, "the books close"
    assert record.overdraft_pico_usd == (overdraft or None) and record.charged_pico_usd == settled
    assert record.overdraft_tokens == record.usage.output_tokens - most


@pytest.mark.parametrize("is_general", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_no_token_is_delivered_beyond_a_token_limit(start, upstream, pattern, is_general):
    gateway = await start(limits=[LIMIT])
    upstream.always(*script(upstream, pattern))
    answer = await ask(gateway, is_general=is_general)
    assert 0 < delivered(answer) <= 60 and b'"finish_reason":"length"' in answer.body
    [record] = gateway.requests()
    assert sum(record.charge_tokens) <= 60
    assert sum(record.charge_tokens) + record.overdraft_tokens >= record.usage.input_tokens + record.usage.output_tokens


@pytest.mark.parametrize("is_general", [False, True])
async def test_a_whole_answer_is_delivered_and_its_overdraft_recorded(start, upstream, is_general):
    gateway = await start(budgets=[BUDGET])
    upstream.always(upstream.whole(upstream.completion(" ".join(WORDS), 10, MADE)))
    answer = await ask(gateway, is_general=is_general, stream=None)
    assert delivered(answer) == MADE
    [record] = gateway.requests()
    assert record.cost_pico_usd == (10 + 2 * MADE) * 1_000_000
    settled, overdraft = standing(gateway)
    assert settled <= 100_000_000 and settled + overdraft == record.cost_pico_usd
    assert (record.charged_pico_usd, record.overdraft_pico_usd) == (settled, overdraft)
    assert record.overdraft_tokens == MADE - int(answer.headers["x-tollkeeper-max-tokens"])


async def test_a_whole_answer_beyond_the_callers_max_tokens_says_so_without_any_rule(start, upstream):
    gateway = await start()
    upstream.always(upstream.whole(upstream.completion("x", 10, 50)))
    assert (await ask(gateway, stream=None, max_tokens=50)).status == 200
    assert (await ask(gateway, stream=None, max_tokens=49)).status == 200
    assert [record.overdraft_tokens for record in gateway.requests()] == [None, 1]


@pytest.mark.parametrize("is_general", [False, True])
async def test_a_whole_answer_without_usage_is_not_estimated_beyond_max_tokens(start, upstream, is_general):
    gateway = await start()
    answer = upstream.completion("incomprehensibilities " * 6) | {"usage": None}  # 33 tokens by its bytes
    upstream.always(upstream.whole(answer))
    assert (await ask(gateway, stream=None, is_general=is_general, max_tokens=7)).status == 200
    assert (await ask(gateway, stream=None, is_general=is_general, max_tokens=5)).status == 200
    honoured, ignored = gateway.requests()
    assert (honoured.usage.output_tokens, honoured.count_method, honoured.overdraft_tokens) == (7, "estimate", None)
    assert (ignored.usage.output_tokens, ignored.count_method, ignored.overdraft_tokens) == (6, "estimate", 1)


@pytest.mark.parametrize("api", ["completions", "messages", "responses"])
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_every_api_ends_such_a_stream_in_its_own_words(start, upstream, pattern, api):
    gateway = await start()
    upstream.always(*script(upstream, pattern, is_text=api == "completions"))
    name = "max_output_tokens" if api == "responses" else "max_tokens"
    answer = await ask(gateway, api=api, **{name: 20})
    assert answer.status == 200, answer.body
    text = answer.body.split(b"response.output_text.done")[0]
    assert sum(word.encode() in text for word in WORDS) == 20
    assert b"output_limit_reached" in answer.body
    said = {"completions": b'"length"', "messages": b'"max_tokens"', "responses": b'"max_output_tokens"'}[api]
    assert said in answer.body


@pytest.mark.parametrize("is_general", [False, True])
@pytest.mark.parametrize("rules", [{}, {"budgets": [WIDE]}, {"limits": [LIMIT | {"amount": 100_000}]}])
@pytest.mark.parametrize("pattern", PATTERNS)
async def test_a_stream_that_honours_max_tokens_is_never_cut(start, upstream, pattern, rules, is_general):
    gateway = await start(**rules)
    upstream.always(*script(upstream, pattern, 40, finish="length"))
    answer = await ask(gateway, is_general=is_general, max_tokens=40)
    assert delivered(answer) == 40 and b"ended_by" not in answer.body
    [record] = gateway.requests()
    assert record.finish_reason == "length" and not record.overdraft_tokens


async def test_tokens_of_several_words_characters_and_lines_are_never_counted_as_more_than_they_are(start, upstream):
    """What one token of common tokenizers may hold: none of it counts as two."""
    gateway = await start()
    pieces = [
        " */\n\n//",
        "\n\n",
        "  ",
        " {\n",
        "é",
        "世界世界",
        "-" * 120,
        ");\n\n",
        " disproportionately",
        "\t\n ",
        "1",
    ]
    events = [upstream.chunk(piece) for piece in pieces]
    upstream.always(upstream.streamed(*events, upstream.chunk(finish="length"), upstream.event(b"[DONE]")))
    answer = await ask(gateway, max_tokens=len(pieces))
    assert b"ended_by" not in answer.body and all(event in answer.body for event in events)


@pytest.mark.parametrize("is_general", [False, True])
async def test_a_report_that_runs_with_the_stream_counts_what_cannot_be_seen(start, upstream, is_general):
    gateway = await start()
    pieces = [f"一二三{number:02d}" for number in range(30)]  # four tokens each, without a space

    def reported(number, piece, finish=None):
        usage = {"prompt_tokens": 10, "completion_tokens": 4 * number, "total_tokens": 10 + 4 * number}
        return upstream.chunk(piece, finish=finish, usage=usage)

    events = [reported(number, piece) for number, piece in enumerate(pieces, 1)]
    upstream.then(upstream.streamed(*events, reported(30, None, "stop"), upstream.event(b"[DONE]")))
    answer = await ask(gateway, is_general=is_general, max_tokens=20)
    assert [event in answer.body for event in events] == [True] * 5 + [False] * 25
    upstream.then(upstream.streamed(*events[:5], reported(5, None, "length"), upstream.event(b"[DONE]")))
    answer = await ask(gateway, is_general=is_general, max_tokens=20)
    assert b"ended_by" not in answer.body
    assert [record.overdraft_tokens for record in gateway.requests()] == [100, None]


async def test_nothing_is_delivered_of_a_chunk_that_cannot_be_divided(start, upstream):
    gateway = await start()
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": json.dumps({"a": " ".join(WORDS)})}}
    event = upstream.event({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]})
    upstream.always(upstream.streamed(upstream.chunk("hm "), event, upstream.chunk(finish="tool_calls")))
    answer = await ask(gateway, max_tokens=20)
    assert delivered(answer) == 0 and b'"length"' in answer.body and b"output_limit_reached" in answer.body
    [record] = gateway.requests()
    assert record.usage.output_tokens == 2 + MADE and record.overdraft_tokens == 1 + MADE


async def test_a_target_that_ignores_max_tokens_is_marked_until_it_honours_it_again(start, upstream, caplog):
    caplog.set_level(logging.WARNING)
    gateway = await start()
    page = lambda: gateway.gateway._readiness.page()  # noqa: E731
    for _ in range(3):
        upstream.then(*script(upstream, "several"))
        await ask(gateway, max_tokens=20)
    upstream.then(upstream.whole(upstream.completion("x", 10, 21)))
    await ask(gateway, stream=None, max_tokens=20)
    assert page()["targets_ignoring_max_tokens"] == ["scripted-1/u1"]
    assert "max_tokens_ignored" in page()["degraded"] and page()["status"] == "ready"
    upstream.then(*script(upstream, "several", 20, finish="length"))
    await ask(gateway, max_tokens=20)
    assert page()["targets_ignoring_max_tokens"] == []
    said = [record.message for record in caplog.records if "max_tokens" in record.message]
    assert len(said) == 2, "one line for each change"


async def test_the_call_of_a_stream_that_is_cut_is_cancelled(start, upstream, eventually):
    gateway = await start()
    head, *pieces = script(upstream, "paced")
    upstream.always(head, *pieces[:60], upstream.STALL)
    answer = await asyncio.wait_for(ask(gateway, max_tokens=20), 10)
    assert delivered(answer) == 20
    await eventually(lambda: not upstream.open)


async def test_a_budgets_overdraft_is_known_again_after_a_restart(start_gateway, kit, upstream, tmp_path):
    config = kit.configuration(("scripted-1", [kit.http_target(upstream.url)]), budgets=[BUDGET])
    upstream.always(upstream.whole(upstream.completion(" ".join(WORDS), 10, MADE)))
    gateway = await start_gateway(config, data=tmp_path / "kept")
    assert (await ask(gateway, stream=None)).status == 200
    before = standing(gateway)
    assert before[1] > 0
    await gateway.close()
    again = await start_gateway(config, data=tmp_path / "kept")
    assert standing(again) == before
