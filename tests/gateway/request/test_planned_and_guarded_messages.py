"""Messages by plans under guardrails, and guarded answers that do not end well: all stages would do the same."""

import asyncio
import json
import re
from typing import Any

import pytest

from contracts.recording.records import ContentRecord
from tests.gateway.apis.native import provider
from tests.gateway.request.pair import counters, facts
from tests.gateway.request.test_cache_hits import metrics_of
from tests.gateway.request.test_planned_and_guarded import CARD, KEY, MAIL, POLICIES, TIMED, ask, guarded, plain
from tests.gateway.request.test_planned_messages import SPOKEN, TOOLS

NUMBER = 4111111111111111
IMAGE: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUFB" * 400}}
# Wherever a message may say something, and what is known by a name that elsewhere holds no words.
SAYING: dict[str, dict[str, Any]] = {
    "nothing": {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, IMAGE]}]},
    "a text": {"messages": [{"role": "user", "content": f"I am {MAIL}"}]},
    "a list of system texts": {
        "system": [{"type": "text", "text": "Be kind."}, {"type": "text", "text": f"Never name {MAIL}"}],
        "messages": [{"role": "user", "content": "hi"}],
    },
    "a document": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": f"by {MAIL}"},
                        "title": f"of {MAIL}",
                    }
                ],
            }
        ]
    },
    "a tool's call and its result": {
        "tools": TOOLS,
        "messages": [
            {"role": "user", "content": "write"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": f"to {MAIL}", "signature": "c2ln"},
                    {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"user": MAIL, "id": [MAIL]}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": MAIL}]}
                ],
            },
        ],
    },
}
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "nothing": [{"type": "text", "text": "General Kenobi"}],
    "a text": [{"type": "text", "text": f"write to {MAIL} with {KEY} now"}],
    "a thought": [
        {"type": "thinking", "thinking": f"that is {MAIL}", "signature": "c2ln"},
        {"type": "text", "text": "yes"},
    ],
    "a call": [
        {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {"command": "a", "id": MAIL, "data": CARD}},
    ],
    "a number": [{"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {"n": [NUMBER, 7], "role": "x"}}],
}


@pytest.fixture
def messages(pair, upstream, kit):
    """A pair under guardrails whose targets speak both APIs, and what asks both the same."""

    async def start(policy: str, **more: Any):
        target = kit.http_target(upstream.url, "u0", **SPOKEN)
        pools = [{"name": "mock", "policy": "round_robin", "targets": [target]}]
        both = await pair(pools=pools, **guarded(*POLICIES[policy]), **more)

        async def ask_both(**fields: Any):
            body = {"model": "mock", "max_tokens": 99, **fields}
            data = kit.request(json.dumps(body).encode(), path="/v1/messages")
            short, long = [await each.ask(data) for each in (both.short, both.long)]
            ours, theirs = (re.sub(rb"(msg|toolu)_[0-9a-f]{32}", rb"\1", plain(one.body)) for one in (short, long))
            assert (short.status, ours) == (long.status, theirs)
            return short

        return both, ask_both

    return start


def compare(both):
    assert books(both.short) == books(both.long)
    assert counters(both.short) == counters(both.long)
    assert metrics_of(both.short) == metrics_of(both.long)
    for each in (both.short, both.long):
        assert each.gateway.admission.in_flight == each.gateway._dispatcher.open_grants == 0


def books(running):
    records = [*running.requests(), *running.attempts()]
    return [{name: value for name, value in facts(one).items() if name not in (*TIMED, "gap_clock")} for one in records]


def script_of(upstream, content, *, stream):
    if stream:
        return upstream.streamed(*provider.message_events(*content))
    return upstream.whole(json.dumps(provider.message(*content)).encode())


def said_in(answer, *, stream):
    """Return what a message says, its deltas put together."""
    if not stream:
        return answer.body
    events = [json.loads(one.partition(b"data: ")[2]) for one in answer.events]
    deltas = [one["delta"] for one in events if one["type"] == "content_block_delta"]
    pieces = ["".join(one.get(name, "") for one in deltas) for name in ("text", "thinking", "partial_json")]
    return "".join(pieces).encode()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("policy", POLICIES)
async def test_what_guardrails_make_of_a_message_by_a_plan_is_what_they_make_of_any(messages, upstream, policy, stream):
    both, ask_both = await messages(policy)
    cases = [(asked, "nothing") for asked in SAYING] + [("nothing", answered) for answered in ANSWERS]
    for asked, answered in cases:
        upstream.always(script_of(upstream, ANSWERS[answered], stream=stream))
        before = len(upstream.requests)
        answer = await ask_both(stream=stream, **SAYING[asked])
        sent = [one.body for one in upstream.requests[before:]]
        is_refused = policy == "block" and asked != "nothing"
        assert answer.status == (400 if is_refused else 200) and len(set(sent)) == (not is_refused), (asked, answered)
        if policy in ("redact", "requests"):
            assert not any(MAIL.encode() in body for body in sent), asked
        else:
            assert all(json.loads(body)["messages"] == SAYING[asked]["messages"] for body in sent)
        said = said_in(answer, stream=stream and answer.status == 200)
        leaks = [found for found in (MAIL, CARD, KEY, str(NUMBER)) if found.encode() in said]
        if policy in ("redact", "answers", "block", "mixed"):
            assert not leaks, (answered, said)
        elif answered != "nothing" and answer.status == 200:
            assert leaks
    assert both.taken == [True] * len(cases)
    compare(both)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_a_guarded_tenant_keeps_of_messages_is_without_what_was_found(
    messages, upstream, eventually, stream
):
    both, ask_both = await messages("redact", tenants=[{"id": "acme", "keeps_content": True, "audits_requests": True}])
    upstream.always(script_of(upstream, ANSWERS["a text"], stream=stream))
    assert (await ask_both(stream=stream, **SAYING["a document"])).status == 200

    def kept(running):
        return [(one.prompt, one.completion) for one in running.records() if isinstance(one, ContentRecord)]

    await eventually(lambda: len(kept(both.short)) == len(kept(both.long)) == 2)
    assert both.taken == [True] and MAIL not in str(kept(both.short)) and KEY not in str(kept(both.short))
    assert [prompt for prompt, _ in kept(both.short)] == [prompt for prompt, _ in kept(both.long)]
    compare(both)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("policy", ["redact", "block", "flag"])
async def test_each_of_several_answers_by_a_plan_is_looked_at_alike(pair, upstream, policy, stream):
    both = await pair(**guarded(*POLICIES[policy]))
    texts = [f"a {MAIL} b", "none", f"{CARD}"]
    if stream:
        pieces = [upstream.chunk(text[:6], index=index) for index, text in enumerate(texts)]
        pieces += [upstream.chunk(text[6:] or " ", index=index) for index, text in enumerate(texts)]
        ends = [upstream.chunk(finish="stop", index=index) for index in range(3)]
        upstream.always(upstream.streamed(*pieces, *ends, upstream.usage(17, 9), upstream.event(b"[DONE]")))
    else:
        whole: Any = upstream.completion(prompt=17, output=9)
        whole["choices"] = [
            {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for index, text in enumerate(texts)
        ]
        upstream.always(upstream.whole(whole))
    for _ in range(2):
        answer = await ask(both, n=3, stream=stream)
    assert both.taken == [True] * 2
    assert (MAIL.encode() in answer.body) == (policy == "flag" and not stream)
    compare(both)


BROKEN: dict[str, list[Any]] = {
    "a stream that breaks off": ["stream", "close"],
    "a stream that stalls": ["stream", "stall"],
    "an error in a stream": ["stream", b'{"error":{"message":"no","code":"x"}}', "close"],
    "no answer": ["reset"],
    "an error": ["status"],
    "what is no answer": ["nonsense"],
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("broken", BROKEN)
async def test_a_guarded_answer_that_fails_is_told_charged_and_tried_again_alike(
    pair, new_upstream, upstream, broken, stream
):
    other = await new_upstream()
    both = await pair(upstream.url, other.url, **guarded(*POLICIES["redact"]))
    script: list[Any] = []
    for step in BROKEN[broken]:
        if step == "stream":
            events = [upstream.chunk("it is "), upstream.chunk("ada@")]
            script += [upstream.stream_head(), *map(upstream.piece, events)]
        elif step == "status":
            script.append(upstream.whole({"error": {"message": f"no {MAIL}"}}, status=500))
        elif step == "nonsense":
            script.append(upstream.whole(b"{"))
        else:
            script.append(upstream.piece(upstream.event(step)) if isinstance(step, bytes) else step)
    upstream.always(*script)
    other.always(*script)
    answer = await ask(both, messages=[{"role": "user", "content": f"I am {MAIL}"}], stream=stream)
    assert both.taken == [True] and MAIL.encode() not in answer.body and answer.status in (200, 502, 504)
    good = upstream.streamed(upstream.chunk(f"to {MAIL}"), upstream.chunk(finish="stop"), upstream.event(b"[DONE]"))
    for each in (upstream, other):
        each.always(good if stream else upstream.whole(upstream.completion(f"to {MAIL}")))
    answer = await ask(both, messages=[{"role": "user", "content": f"I am {MAIL}"}], stream=stream)
    assert answer.status == 200 and b"[email]" in answer.body
    assert not any(MAIL.encode() in one.body for one in (*upstream.requests, *other.requests))
    compare(both)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_client_that_leaves_a_guarded_answer_is_charged_alike(pair, upstream, eventually, stream):
    both = await pair(**guarded(*POLICIES["redact"]))
    begun = [upstream.stream_head(), *map(upstream.piece, (upstream.chunk("hello "), upstream.chunk("ada@")))]
    upstream.always(*(begun if stream else ()), "stall")
    for each in (both.short, both.long):
        client, asked = await each.connect(), len(upstream.requests)
        await client.send(each.request(model="mock", stream=stream))
        await eventually(lambda asked=asked: len(upstream.requests) > asked)
        if stream:
            await client.head()
            await anext(client.pieces())
        await asyncio.sleep(0.01)
        client.close()
    await eventually(lambda: len(both.short.requests()) == len(both.long.requests()) == 2)
    assert both.taken == [True] and both.short.requests()[-1].outcome == "cancelled"
    compare(both)


@pytest.mark.parametrize("most", [2, 99])
async def test_a_message_that_goes_beyond_its_limit_is_cut_alike(messages, upstream, most):
    both, ask_both = await messages("flag")
    words = {"type": "text", "text": " ".join(["word"] * 20) + f" {MAIL}"}
    upstream.always(upstream.streamed(*provider.message_events(words)))
    answer = await ask_both(stream=True, max_tokens=most, messages=[{"role": "user", "content": "hi"}])
    assert both.taken == [True] and answer.status == 200
    assert (b'"stop_reason":"max_tokens"' in answer.body.replace(b" ", b"")) == (most == 2)
    compare(both)
