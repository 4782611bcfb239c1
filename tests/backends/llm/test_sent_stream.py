"""A stream that is sent before anyone takes its reply: nothing of it is lost, and it is not left running."""

import asyncio
import json
from uuid import UUID

import pytest

from backends.llm.base import ModelCall
from backends.llm.http.openai_body import BodyFields, body_for, with_usage
from backends.llm.http.openai_http import OpenAIHttpTarget
from contracts.api.chat import StreamOptions
from contracts.errors import UpstreamBroken
from contracts.serving.configuration import TargetSpec
from gateway.apis.reading import read_chat
from tests.backends.llm.conftest import MemorySink

BODY = b'{"model":"mock","messages":[{"role":"user","content":"Hi"}],"stream":true}'
ID = UUID(int=7)


@pytest.fixture
async def connected(upstream):
    """Give a target that has an idle connection to the server."""
    target = OpenAIHttpTarget(TargetSpec(id="u1", pool="p", kind="openai_http", url=upstream.url), lambda ref: "")
    upstream.then(upstream.whole(upstream.completion()))
    whole = BODY.replace(b"true", b"false")
    request = read_chat("application/json", whole)
    await target.call(ModelCall(ID, "/chat/completions", request, whole, tenant="", cache_salt=""), MemorySink())
    yield target
    await target.close()


def call():
    request = read_chat("application/json", BODY)
    return ModelCall(ID, "/chat/completions", request, BODY, tenant="acme", cache_salt="")


def send(target):
    return target.send_ahead("/chat/completions", read_chat("application/json", BODY), BODY, str(ID), "")


async def test_what_comes_before_it_is_taken_is_taken_with_it(connected, upstream, eventually):
    events = [upstream.chunk("a"), upstream.chunk("b"), upstream.chunk(finish="stop"), upstream.usage(3, 2)]
    upstream.always(upstream.streamed(*events, upstream.event(b"[DONE]")))
    sent, before = send(connected), upstream.accepted
    await asyncio.sleep(0.02)
    asked, sink = call(), MemorySink()
    asked.sent = sent
    result = await connected.call(asked, sink)
    assert (sink.events, result.usage.output_tokens, asked.sent) == (events[:3], 2, None)
    assert len(upstream.requests) == 2 and upstream.accepted == before
    sent.abandon()  # comes too late to do anything
    again = send(connected)
    assert again is not None, "its connection is idle again"
    again.abandon()


async def test_what_nobody_takes_is_closed(connected, upstream, eventually):
    upstream.always("stall")
    lost = len(upstream.lost_at)
    send(connected).abandon()
    await eventually(lambda: len(upstream.lost_at) == lost + 1)
    assert send(connected) is None, "there is no idle connection"


async def test_what_nobody_takes_is_closed_also_where_its_reply_is_there(connected, upstream, eventually):
    upstream.always(upstream.whole({"error": {"message": "no"}}, 500))
    sent, lost = send(connected), len(upstream.lost_at)
    await asyncio.sleep(0.02)
    sent.abandon()
    await eventually(lambda: len(upstream.lost_at) == lost + 1)


async def test_another_target_does_not_take_it(connected, upstream, new_upstream, eventually):
    upstream.always("stall")
    second = await new_upstream()
    second.always(second.streamed(second.chunk("a"), second.chunk(finish="stop"), second.event(b"[DONE]")))
    other = OpenAIHttpTarget(TargetSpec(id="u2", pool="p", kind="openai_http", url=second.url), lambda ref: "")
    asked, lost, sink = call(), len(upstream.lost_at), MemorySink()
    asked.sent = send(connected)
    await other.call(asked, sink)
    assert sink.text == "a"
    await eventually(lambda: len(upstream.lost_at) == lost + 1)
    await other.close()


async def test_a_fault_in_what_has_come_is_the_calls(connected, upstream):
    upstream.always(upstream.whole(upstream.completion()))
    asked = call()
    asked.sent = send(connected)
    await asyncio.sleep(0.02)
    with pytest.raises(UpstreamBroken, match="content type"):
        await connected.call(asked, MemorySink())


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (b'{"stream":true}', None),
        (b' {"stream":true \n} \n', None),
        (b'{"stream":true,"stream_options":null}', None),
        (b'{"stream":true,"stream_options":{"include_usage":false,"a":1}}', StreamOptions(include_usage=False)),
        (b'{"stream":true,"stream_options":{"include_usage":true}}', StreamOptions(include_usage=True)),
        (b'{"stream":true,"x":"stream_options"}', None),
    ],
)
def test_usage_is_asked_for_in_every_stream(body, options):
    fields = {"messages": [{"role": "user", "content": "Hi"}], "model": "mock"}
    body = body[: body.index(b'"stream"')] + json.dumps(fields)[1:-1].encode() + b"," + body[body.index(b'"stream"') :]
    request = read_chat("application/json", body)
    assert request.stream_options == options
    sent = with_usage(request, body)
    assert sent == body_for(ModelCall(ID, "", request, body, tenant="", cache_salt=""), BodyFields())
    given, told = json.loads(body), json.loads(sent)
    assert told.pop("stream_options") == {**(given.pop("stream_options", None) or {}), "include_usage": True}
    assert told == given
