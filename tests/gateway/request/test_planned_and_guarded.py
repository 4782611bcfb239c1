"""Plans whose texts go through guardrails: what is cut, blocked, told and charged is what all stages would."""

import json
import re
from typing import Any

import pytest

from tests.gateway.apis.native import provider
from tests.gateway.request.pair import counters, facts
from tests.gateway.request.test_planned_messages import ID, SPOKEN

MAIL, CARD, KEY = "ada@example.org", "4111 1111 1111 1111", "AKIAIOSFODNN7EXAMPLE"
TIMED = ("gaps", "ttft_ns", "admission_ns", "guard_ns", "guard_held_ns", "span_id", "response_bytes")


def stages(direction: str, action: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {"name": f"pii-{direction}", "detector": "pii", "direction": direction, "action": action, **more},
        {"name": f"secrets-{direction}", "detector": "secrets", "direction": direction, "action": action, **more},
    ]


def guarded(*found: dict[str, Any]) -> dict[str, Any]:
    return {"guardrails": [{"name": "p", "tenants": ["acme"], "stages": list(found)}]}


POLICIES = {
    "redact": stages("both", "redact"),
    "block": stages("both", "block"),
    "flag": stages("both", "flag"),
    "dry run": stages("both", "block", dry_run=True),
    "answers": stages("output", "redact"),
    "requests": stages("input", "redact"),
    "mixed": [*stages("input", "flag"), *stages("output", "block")],
}
SAID = {
    "nothing": ("Hello there", "General Kenobi"),
    "asked": (f"I am {MAIL}, {CARD}", "General Kenobi"),
    "answered": ("Hello there", f"write to {MAIL} with {KEY} now"),
    "both": (f"I am {MAIL}", f"You are {MAIL} and {CARD}."),
    "at the end": ("Hello there", f"That is {MAIL}"),
    "beyond ASCII": (f"h\u00e9llo {MAIL} \U0001f600", f"gr\u00fc\u00dfe {CARD} \U0001f600"),
}


@pytest.fixture
def both_of(pair, upstream):
    async def start(policy: str | dict[str, Any], **more: Any):
        given = guarded(*POLICIES[policy]) if isinstance(policy, str) else policy
        return await pair(**given, **more)

    return start


def plain(body: bytes) -> bytes:
    """Return an answer without its request's id and the second in which it was made."""
    body = re.sub(rb"chatcmpl-[0-9a-f]{32}", b"chatcmpl", re.sub(ID, b"", body))
    return re.sub(rb'"created":\d+', b'"created":0', body)


def text_of(stream: bytes) -> str:
    """Return the text of a stream, however it was cut into chunks."""
    chunks = [json.loads(line[6:]) for line in stream.split(b"\n\n") if line[6:7] == b"{"]
    return "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks if one.get("choices"))


async def ask(both, path="/v1/chat/completions", **fields):
    short, long = [await each.chat(model="mock", **fields) for each in (both.short, both.long)]
    assert short.status == long.status
    assert plain(short.body) == plain(long.body)
    return short


def compare(both):
    ours, theirs = (
        [{name: value for name, value in facts(one).items() if name not in TIMED} for one in each.requests()]
        for each in (both.short, both.long)
    )
    assert ours == theirs
    assert counters(both.short) == counters(both.long)
    for each in (both.short, both.long):
        for record in each.requests():
            is_held = _is_held(each) and record.outcome != "rejected"
            assert (record.guard_ns or 0) > 0 and (record.guard_held_ns is not None) == is_held
        assert each.gateway.admission.in_flight == each.gateway._dispatcher.open_grants == 0


def _is_held(running):
    """Return whether a stage looks at answers."""
    policies = running.gateway.directory.snapshot.guardrails
    return any(stage.direction != "input" for policy in policies for stage in policy.stages)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("policy", POLICIES)
async def test_what_guardrails_make_of_a_chat_by_a_plan_is_what_they_make_of_any(both_of, upstream, policy, stream):
    both = await both_of(policy)
    for asked, answered in SAID.values():
        if stream:
            pieces = [answered[place : place + 5] for place in range(0, len(answered), 5)]
            events = [*map(upstream.chunk, pieces), upstream.chunk(finish="stop"), upstream.usage(17, 9)]
            upstream.always(upstream.streamed(*events, upstream.event(b"[DONE]")))
        else:
            upstream.always(upstream.whole(upstream.completion(answered, prompt=17, output=9)))
        before = len(upstream.requests)
        fields: Any = {"stream_options": {"include_usage": True}} if stream else {}
        answer = await ask(both, messages=[{"role": "user", "content": asked}], stream=stream, **fields)
        sent = [one.body for one in upstream.requests[before:]]
        is_refused = policy == "block" and MAIL in asked
        assert len(set(sent)) == (not is_refused) and answer.status == (400 if is_refused else 200)
        if policy in ("redact", "requests"):
            assert not any(MAIL.encode() in body or CARD.encode() in body for body in sent)
        if policy in ("redact", "answers", "block", "mixed"):
            assert MAIL.encode() not in answer.body and CARD.encode() not in answer.body
        if policy in ("flag", "dry run") and stream:
            assert text_of(answer.body) == answered
    assert both.taken == [True] * len(SAID)
    compare(both)
    verdicts = [record.verdicts for record in both.short.requests()[1:]]
    assert not verdicts[0] and any(verdicts)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_tools_and_thoughts_by_a_plan_are_looked_at_alike(both_of, upstream, stream):
    both = await both_of("redact")
    call = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": json.dumps({"to": MAIL})},
    }
    if stream:
        thought = upstream.event({"choices": [{"index": 0, "delta": {"reasoning_content": f"so {MAIL}"}}]})
        called = upstream.event({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
        events = [thought, upstream.chunk("hi"), called, upstream.chunk(finish="tool_calls")]
        upstream.always(upstream.streamed(*events, upstream.usage(17, 9), upstream.event(b"[DONE]")))
    else:
        whole: Any = upstream.completion("hi", prompt=17, output=9)
        whole["choices"][0]["message"] |= {"tool_calls": [call], "reasoning_content": f"so {MAIL}"}
        upstream.always(upstream.whole(whole))
    tools = [{"type": "function", "function": {"name": "f", "description": f"writes to {MAIL}"}}]
    for _ in range(2):
        answer = await ask(both, tools=tools, stream=stream)
    assert both.taken == [True] * 2 and MAIL.encode() not in answer.body
    assert not any(MAIL.encode() in one.body for one in upstream.requests)
    compare(both)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_message_by_a_plan_is_looked_at_alike(pair, upstream, kit, stream):
    target = kit.http_target(upstream.url, "u0", **SPOKEN)
    pools = [{"name": "mock", "policy": "round_robin", "targets": [target]}]
    both = await pair(pools=pools, **guarded(*POLICIES["redact"]))
    text = {"type": "text", "text": f"write to {MAIL} now"}
    whole = upstream.whole(json.dumps(provider.message(text)).encode())
    upstream.always(upstream.streamed(*provider.message_events(text)) if stream else whole)
    asked = {"model": "mock", "max_tokens": 99, "messages": [{"role": "user", "content": f"I am {MAIL}"}]}
    data = kit.request(json.dumps({**asked, "stream": stream}).encode(), path="/v1/messages")
    for _ in range(2):
        short, long = [await each.ask(data) for each in (both.short, both.long)]
        ours, theirs = (re.sub(rb"(msg|toolu)_[0-9a-f]{32}", rb"\1", plain(one.body)) for one in (short, long))
        assert short.status == long.status == 200 and ours == theirs and MAIL.encode() not in ours
    assert both.taken == [True] * 2
    assert not any(MAIL.encode() in one.body for one in upstream.requests[2:])
    compare(both)


@pytest.mark.parametrize("most", [8, 12, 60])
async def test_a_stream_that_its_limit_ends_goes_through_guardrails_to_its_end(both_of, upstream, most):
    both = await both_of("redact")
    pieces = [upstream.chunk(piece) for piece in [*(["so "] * 6), "ada@", "example", ".org", " now", " and", " then"]]
    upstream.always(upstream.streamed(*pieces, upstream.chunk(finish="stop"), upstream.event(b"[DONE]")))
    short, long = [await each.chat(model="mock", stream=True, max_tokens=most) for each in (both.short, both.long)]
    assert text_of(short.body) == text_of(long.body) and short.status == long.status == 200
    assert both.taken == [True] and b"example.org" not in short.body
    assert [one.finish_reason for one in both.short.requests()] == [one.finish_reason for one in both.long.requests()]
    assert counters(both.short) == counters(both.long)


@pytest.mark.parametrize(
    "stage",
    [
        {"name": "w", "detector": "models", "direction": "input", "action": "block", "settings": {"allowed": ["mock"]}},
        {"name": "i", "detector": "canary", "direction": "both", "action": "block"},
    ],
    ids=["rule", "of requests"],
)
async def test_guardrails_that_ask_for_more_have_no_plan(both_of, upstream, stage):
    both = await both_of(guarded(stage))
    upstream.always(upstream.whole(upstream.completion()))
    await ask(both)
    assert both.taken == [False]


async def test_requests_that_guardrails_watch_are_kept_as_they_left_them(both_of, upstream, eventually):
    tenants = [{"id": "acme", "keeps_content": True, "audits_requests": True}]
    both = await both_of("redact", tenants=tenants)
    upstream.always(upstream.whole(upstream.completion(f"to {MAIL}", prompt=17, output=9)))
    await ask(both, messages=[{"role": "user", "content": f"I am {MAIL}"}])
    assert both.taken == [True]
    compare(both)
