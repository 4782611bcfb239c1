"""What servers over HTTP are sent of a chat that came in another API's words: in theirs, as far as they take it."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from backends.llm.base import ModelCall
from backends.llm.http.openai_body import BodyFields, body_for
from contracts.api.chat import Message, TranslatedChat

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
MARKED = json.dumps({**CHAT, "cache_control": "x"}).encode()


def call(*, body: dict[str, Any], marked: bytes = b"", **fields: Any) -> ModelCall:
    messages = [Message("user", "a")]
    raw = json.dumps(body).encode()
    request = TranslatedChat(
        model="m", messages=messages, chat_body=raw, marked_body=marked, origin=Message("user"), **fields
    )
    return ModelCall(UUID(int=1), "/chat/completions", request, raw, tenant="t", cache_salt="")


def sent(made: ModelCall, **server: Any) -> dict[str, Any]:
    found = json.loads(body_for(made, BodyFields(**server)))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("stated", [{}, {"max_tokens": 9}, {"max_completion_tokens": 9}])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_the_limit_has_the_servers_name_whatever_it_was_called(stated, name):
    made = call(body=CHAT | stated, max_tokens=9)
    assert sent(made, output_limit=name) == CHAT | {name: 9}
    assert sent(replace(made, max_output=5), output_limit=name) == CHAT | {name: 5}


def test_a_chat_without_a_limit_gets_none():
    assert sent(call(body=CHAT)) == CHAT


def test_marks_go_to_servers_that_take_them():
    made = call(body=CHAT, marked=MARKED)
    assert sent(made) == CHAT
    assert sent(made, sends_cache_control=True) == CHAT | {"cache_control": "x"}
    assert sent(made, sends_cache_control=True, model="n") == CHAT | {"cache_control": "x", "model": "n"}
    assert sent(call(body=CHAT), sends_cache_control=True) == CHAT


def test_an_effort_that_only_the_gateway_wrote_down_is_left_out_where_none_is_taken():
    made = call(body=CHAT | {"reasoning_effort": "low"}, reasoning_effort="low")
    assert sent(made) == CHAT | {"reasoning_effort": "low"}
    assert sent(made, sends_reasoning_effort=False) == CHAT
    assert sent(replace(made, reasoning_effort="none")) == CHAT | {"reasoning_effort": "none"}


def test_a_stream_is_asked_for_its_usage():
    made = call(body=CHAT | {"stream": True}, stream=True)
    assert sent(made) == CHAT | {"stream": True, "stream_options": {"include_usage": True}}
