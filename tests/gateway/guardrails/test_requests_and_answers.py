"""Real clients at a real gateway: what guardrails stop, cut and flag on the way in and out, and what is recorded."""

import json
from typing import Any

import anthropic
import openai
import pytest

CARD = "4111 1111 1111 1111"
CARD_CALL = {"id": "c", "type": "function", "function": {"name": "pay", "arguments": json.dumps({"to": CARD})}}
MODEL = "scripted-1"
REPLY = f"Sure, the number is {CARD} and that is all there is."


def stage(name, detector, direction="input", action="block", *, dry_run=False, **settings):
    return {
        "name": name,
        "detector": detector,
        "direction": direction,
        "action": action,
        "dry_run": dry_run,
        "settings": settings,
    }


@pytest.fixture
def guarded(start_gateway, kit):
    """Start a gateway whose model plays `reply`, and whose tenant's requests go through `stages`."""

    async def start(*stages, reply=REPLY, target=None, **more):
        target = target or kit.scripted(reply=reply)
        policy = {"name": "p", "tenants": ["acme"], "stages": list(stages)}
        return await start_gateway(kit.configuration((MODEL, [target]), guardrails=[policy], **more))

    return start


def claude(gateway, kit):
    client = anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{gateway.port}", api_key=kit.KEY, max_retries=0)
    gateway._clients.append(client)
    return client


def user(text):
    return [{"role": "user", "content": text}]


async def test_a_blocked_request_is_refused_in_each_apis_words_recorded_and_not_billed(guarded, kit):
    gateway = await guarded(stage("cards", "pii", kinds=["card"]))
    asked = f"my card is {CARD}"
    with pytest.raises(openai.BadRequestError) as refused:
        await gateway.sdk().chat.completions.create(model=MODEL, messages=user(asked))
    assert refused.value.code == "content_blocked" and "cards" in str(refused.value) and CARD not in str(refused.value)
    with pytest.raises(openai.BadRequestError):
        await gateway.sdk().completions.create(model=MODEL, prompt=asked)
    with pytest.raises(openai.BadRequestError):
        await gateway.sdk().responses.create(model=MODEL, input=asked)
    with pytest.raises(openai.BadRequestError):
        await gateway.sdk().embeddings.create(model=MODEL, input=["fine", asked])
    with pytest.raises(anthropic.BadRequestError) as told:
        await claude(gateway, kit).messages.create(model=MODEL, max_tokens=9, messages=user(asked))
    body: Any = told.value.body
    assert body["error"]["details"]["error_code"] == "content_blocked"
    reranked = await gateway.chat({"model": MODEL, "query": "which?", "documents": ["fine", asked]}, path="/v1/rerank")
    assert (reranked.status, reranked.error["code"]) == (400, "content_blocked")
    records = gateway.requests()
    assert [(one.outcome, one.status, one.error_code, one.cost_pico_usd) for one in records] == [
        ("rejected", 400, "content_blocked", 0)
    ] * 6
    assert {tuple(one.verdicts) for one in records} == {("input/cards/block:card=1",)}
    assert all(one.guard_ns is not None for one in records)


async def test_what_is_cut_out_of_a_request_never_reaches_the_model(guarded, kit, upstream):
    gateway = await guarded(
        stage("cards", "pii", action="redact", kinds=["card", "email"]), target=kit.http_target(upstream.url)
    )
    upstream.always(upstream.whole(upstream.completion("fine")))
    asked = "my c\u0430rd is 4111\u200b 1111 1111 1111, a@b.example"
    await gateway.sdk().chat.completions.create(model=MODEL, messages=user(asked), temperature=0.5)
    assert upstream.requests[-1].json["messages"] == user("my c\u0430rd is [card], [email]")
    assert upstream.requests[-1].json["temperature"] == 0.5
    await claude(gateway, kit).messages.create(
        model=MODEL, max_tokens=9, system=f"never {CARD}", messages=user([{"type": "text", "text": asked}])
    )
    assert CARD not in json.dumps(upstream.requests[-1].json) and "[card]" in json.dumps(upstream.requests[-1].json)
    await gateway.sdk().responses.create(model=MODEL, input=asked, instructions=f"never {CARD}")
    assert "1111" not in json.dumps(upstream.requests[-1].json)
    assert {tuple(one.verdicts) for one in gateway.requests()} >= {("input/cards/redact:card+email=2",)}
    assert {one.outcome for one in gateway.requests()} == {"ok"}


async def test_an_identity_number_of_a_place_that_does_not_exist_is_none(guarded, kit, upstream):
    gateway = await guarded(stage("ids", "pii", action="redact"), target=kit.http_target(upstream.url))
    upstream.always(upstream.whole(upstream.completion("fine")))
    asked = "10001 110001199001011231, of 110101199001011237"  # both with a day and a check digit that hold
    answer = await gateway.chat(messages=user(asked))
    assert answer.status == 200
    assert upstream.requests[-1].json["messages"] == user("10001 110001199001011231, of [cn_ric]")


@pytest.mark.parametrize("streams", [False, True])
async def test_what_is_cut_out_of_an_answer_never_reaches_the_client(guarded, kit, streams):
    gateway = await guarded(stage("cards", "pii", "output", "redact", kinds=["card"]))
    expected = REPLY.replace(CARD, "[card]")
    assert await said_by_openai(gateway, streams) == ([expected] * 2, ["stop"] * 2)
    assert await said_by_completions(gateway, streams) == (expected, "stop")
    assert await said_by_responses(gateway, streams) == (expected, "completed", None)
    assert await said_by_claude(claude(gateway, kit), streams) == (expected, "end_turn")
    records = gateway.requests()
    assert [one.verdicts for one in records] == [[f"output/cards/redact:card={n}"] for n in (2, 1, 1, 1)]
    assert all(one.guard_held_ns is not None and one.outcome == "ok" and one.finish_reason == "stop" for one in records)
    assert all(one.usage.output_tokens == len(REPLY.split()) * one.choices for one in records)


@pytest.mark.parametrize("streams", [False, True])
async def test_a_blocked_answer_ends_in_each_apis_way_and_what_was_made_is_paid_for(guarded, kit, streams):
    gateway = await guarded(stage("cards", "pii", "output", "block", kinds=["card"]))
    start = "Sure, the number is "
    assert await said_by_openai(gateway, streams, choices=1) == ([start], ["content_filter"])
    assert await said_by_completions(gateway, streams) == (start, "content_filter")
    assert await said_by_responses(gateway, streams) == (start, "incomplete", "content_filter")
    assert await said_by_claude(claude(gateway, kit), streams) == (start, "refusal")
    for record in gateway.requests():
        assert (record.outcome, record.finish_reason, record.status) == ("ok", "content_filter", 200)
        assert record.verdicts == ["output/cards/block:card=1"]
        assert record.usage.output_tokens and record.cost_pico_usd


@pytest.mark.parametrize("streams", [False, True])
async def test_flags_and_dry_runs_are_written_down_and_change_nothing(guarded, streams):
    gateway = await guarded(
        stage("seen", "pii", "both", "flag", kinds=["card"]),
        stage("later", "pii", "both", "block", dry_run=True, kinds=["card"]),
    )
    told = await said_by_openai(gateway, streams, choices=1, text=f"is it {CARD}?")
    assert told == ([REPLY], ["stop"])
    assert gateway.requests()[-1].verdicts == [
        "input/seen/flag:card=1",
        "dry:input/later/block:card=1",
        "output/seen/flag:card=1",
        "dry:output/later/block:card=1",
    ]


async def test_an_upstreams_bytes_are_cut_at_every_split_of_them(guarded, kit, upstream):
    gateway = await guarded(
        stage("cards", "pii", "output", "redact", kinds=["card"]), target=kit.http_target(upstream.url)
    )
    call = '{"to": "4111\\u00201111 1111 1111", "é": 5500000000000004}'
    pieces = [upstream.chunk(part) for part in ("Zahl\u00e9 41", "11 1111 1", "111 1111", " \u00fcber")]
    calls = [call[at : at + 7] for at in range(0, len(call), 7)]
    for number, part in enumerate(calls):
        head = {"id": "c1", "type": "function"} if not number else {}
        function = {"arguments": part, **({"name": "pay"} if not number else {})}
        delta = {"tool_calls": [{"index": 0, **head, "function": function}]}
        pieces.append(upstream.event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
    pieces += [upstream.chunk(finish="tool_calls"), upstream.usage(3, 9)]
    body = upstream.streamed(*pieces)
    data = body
    for size in (1, 3, 11, 64):
        upstream.then(*(data[at : at + size] for at in range(0, len(data), size)))
        stream = await gateway.sdk().chat.completions.create(model=MODEL, messages=user("go"), stream=True)
        deltas = [event.choices[0].delta async for event in stream if event.choices]
        assert "".join(delta.content or "" for delta in deltas) == "Zahl\u00e9 [card] \u00fcber"
        made = [one.function for delta in deltas for one in delta.tool_calls or ()]
        assert [one.name for one in made if one.name] == ["pay"]
        assert json.loads("".join(one.arguments or "" for one in made)) == {"to": "[card]", "é": "[card]"}


BLOCKED_ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "the text": ({"content": f"Pay by {CARD}, please"}, "Pay by "),
    "a redacted text": ({"content": f"Mail a@b.io or pay by {CARD}"}, "Mail [email] or pay by "),
    "a call behind a text": ({"content": "I pay.", "tool_calls": [CARD_CALL]}, "I pay."),
    "a thought before a text": ({"reasoning_content": CARD, "content": "Nothing"}, ""),
    "the first word": ({"content": CARD}, ""),
}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("place", BLOCKED_ANSWERS)
async def test_a_servers_blocked_answer_ends_where_the_match_begins(guarded, kit, upstream, place, streams):
    gateway = await guarded(
        stage("mail", "pii", "output", "redact", kinds=["email"]),
        stage("cards", "pii", "output", "block", kinds=["card"]),
        target=kit.http_target(upstream.url),
    )
    said, left = BLOCKED_ANSWERS[place]
    if streams:
        parts = [{name: [{"index": 0, **CARD_CALL}] if name == "tool_calls" else part} for name, part in said.items()]
        pieces = [{"choices": [{"index": 0, "delta": part, "finish_reason": None}]} for part in parts]
        upstream.then(upstream.streamed(*map(upstream.event, pieces), upstream.chunk(finish="stop")))
    else:
        choice = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": "stop"}
        upstream.then(upstream.whole(upstream.completion() | {"choices": [choice]}))
    assert await said_by_openai(gateway, streams, choices=1) == ([left], ["content_filter"])


async def test_an_upstreams_whole_answer_is_cut_in_all_its_choices_and_calls(guarded, kit, upstream):
    gateway = await guarded(
        stage("cards", "pii", "output", "redact", kinds=["card"]),
        stage("words", "deny", "output", "block", keywords=["blue moon"]),
        target=kit.http_target(upstream.url),
    )
    answer: dict[str, Any] = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "system_fingerprint": "kept",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": REPLY}, "finish_reason": "stop"},
            {"index": 1, "message": {"role": "assistant", "tool_calls": [CARD_CALL]}, "finish_reason": "tool_calls"},
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12},
    }
    upstream.then(upstream.whole(answer))
    found = await gateway.sdk().chat.completions.create(model=MODEL, messages=user("go"), n=2)
    assert found.choices[0].message.content == REPLY.replace(CARD, "[card]")
    assert json.loads(found.choices[1].message.tool_calls[0].function.arguments) == {"to": "[card]"}
    assert found.system_fingerprint == "kept"
    answer["choices"][0]["message"]["content"] = "under a blue moon"
    upstream.then(upstream.whole(answer))
    found = await gateway.sdk().chat.completions.create(model=MODEL, messages=user("go"), n=2)
    assert (found.choices[0].finish_reason, found.choices[0].message.content) == ("content_filter", "under a ")
    assert gateway.requests()[-1].finish_reason == "content_filter"


async def test_kept_answers_are_kept_as_the_stages_left_them(guarded):
    gateway = await guarded(
        stage("cards", "pii", "output", "redact", kinds=["card"]),
        routes=[{"name": "chat", "choose": [{"model": MODEL}], "cache": {"ttl_seconds": 60}}],
    )
    for _ in range(2):
        answer = await gateway.chat(model="chat")
        assert answer.json["choices"][0]["message"]["content"] == REPLY.replace(CARD, "[card]")
    assert [one.cache for one in gateway.requests()] == ["miss", "hit"]
    assert [one.verdicts for one in gateway.requests()] == [["output/cards/redact:card=1"]] * 2


async def test_rules_refuse_lower_and_fill_in_what_requests_ask_for(guarded, kit, upstream):
    gateway = await guarded(
        stage("length", "max_tokens", action="redact", default=50, most=100),
        stage("fields", "parameters", action="redact", denied=["seed"]),
        stage("names", "models", denied=["other"]),
        stage("no_tools", "parameters", denied=["tools"]),
        target=kit.http_target(upstream.url),
    )
    upstream.always(upstream.whole(upstream.completion("fine")))
    await gateway.chat(seed=3)
    assert (upstream.requests[-1].json["max_tokens"], "seed" in upstream.requests[-1].json) == (50, False)
    await gateway.chat(max_tokens=101)
    assert upstream.requests[-1].json["max_tokens"] == 100
    await gateway.chat(max_tokens=100)
    assert upstream.requests[-1].json["max_tokens"] == 100
    refused = await gateway.chat(tools=[{"type": "function", "function": {"name": "f"}}])
    assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "request_not_allowed", "tools")
    assert [one.verdicts for one in gateway.requests()] == [
        ["input/fields/redact:parameter=1"],
        ["input/length/redact:max_tokens=1"],
        [],
        ["input/no_tools/block:parameter=1"],
    ]


async def test_policies_cover_whom_they_name_and_the_broadest_comes_first(start_gateway, kit):
    policies = [
        {"name": "one", "tenants": ["acme"], "routes": [MODEL], "stages": [stage("mine", "deny", keywords=["red"])]},
        {"name": "all", "stages": [stage("ours", "deny", action="redact", keywords=["red"])]},
        {"name": "others", "tenants": ["globex"], "stages": [stage("theirs", "deny", keywords=["blue"])]},
    ]
    gateway = await start_gateway(kit.configuration((MODEL, [kit.scripted()]), guardrails=policies))
    answer = await gateway.chat(messages=user("red and blue"))
    assert (answer.status, gateway.requests()[-1].verdicts) == (200, ["input/ours/redact:keyword=1"])


async def test_requests_that_no_policy_covers_go_the_short_way(start_gateway, kit, upstream):
    policies = [{"name": "p", "tenants": ["globex"], "stages": [stage("s", "deny", keywords=["red"])]}]
    target = kit.http_target(upstream.url)
    gateway = await start_gateway(kit.configuration((MODEL, [target]), guardrails=policies))
    upstream.always(upstream.whole(upstream.completion("fine")))
    for _ in range(2):
        assert (await gateway.chat()).status == 200
    assert all(one.guard_ns is None and one.guard_held_ns is None for one in gateway.requests())


def _pieces(deltas, index):
    return "".join(piece for at, piece in deltas if at == index)


async def said_by_openai(gateway, streams, choices=2, text="hello"):
    ask = gateway.sdk().chat.completions.create
    given = await ask(model=MODEL, messages=user(text), n=choices, stream=streams)
    if not streams:
        return [one.message.content for one in given.choices], [one.finish_reason for one in given.choices]
    events = [choice async for event in given for choice in event.choices]
    said = [(one.index, one.delta.content or "") for one in events]
    ends = {one.index: one.finish_reason for one in events if one.finish_reason}
    return [_pieces(said, number) for number in range(choices)], [ends[number] for number in range(choices)]


async def said_by_completions(gateway, streams):
    given = await gateway.sdk().completions.create(model=MODEL, prompt="hello", stream=streams)
    if not streams:
        return given.choices[0].text, given.choices[0].finish_reason
    events = [event.choices[0] async for event in given if event.choices]
    return "".join(one.text for one in events), next(one.finish_reason for one in events if one.finish_reason)


async def said_by_responses(gateway, streams):
    given = await gateway.sdk().responses.create(model=MODEL, input="hello", stream=streams, store=False)
    if streams:
        events = [event async for event in given]
        said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        given = events[-1].response
        assert given.output_text == said
    details = given.incomplete_details
    return given.output_text, given.status, None if details is None else details.reason


async def said_by_claude(client, streams):
    asked = {"model": MODEL, "max_tokens": 100, "messages": user("hello")}
    if not streams:
        given = await client.messages.create(**asked)
    else:
        async with client.messages.stream(**asked) as stream:
            given = await stream.get_final_message()
    return "".join(block.text for block in given.content), given.stop_reason
