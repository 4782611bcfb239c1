"""Marks of prompts to be kept: where they may stand, and how many tokens each covers."""

import json
from typing import Any

import pytest

from backends.llm.cache_marks import kept_prefixes, marks_of
from backends.llm.host_inputs.engine_messages import messages_of
from backends.llm.host_inputs.engine_prompt import prompt_of
from backends.tokenization.tokenizer import PromptFormat
from contracts.errors import InvalidRequest
from gateway.apis.messages.translation import read_messages_as_chat
from gateway.apis.reading import read_chat
from tests.backends.llm.engine_fake import builtin_hello

HELLO = builtin_hello()
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}\n"
    "{% if loop.first and tools %}{{ tools | tojson }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
FORM = PromptFormat(HELLO.tokenizer, TEMPLATE, {})
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
LONG = "You know all about parcels, tariffs and the sea. " * 20


def part(text: str, mark: dict[str, str] | None = None) -> dict[str, Any]:
    return {"type": "text", "text": text} | ({"cache_control": mark} if mark else {})


def covered(messages: list[dict[str, Any]], **more: Any) -> list[tuple[str, int]]:
    """Return what each prefix to be kept says, and for how long it is kept."""
    body = json.dumps({"model": "tiny", "messages": messages, **more}).encode()
    request = read_chat("application/json", body)
    given = {"tools": more["tools"]} if "tools" in more else {}
    plain = messages_of(request, json_raw(body, "messages"))
    ids = FORM.encode(FORM.render(plain, **given))
    found = kept_prefixes(marks_of(request, body), request, plain, FORM, given, ids)
    return [(FORM._tokenizer.decode(ids[: kept.tokens], skip_special_tokens=False), kept.ttl_seconds) for kept in found]


def json_raw(body: bytes, name: str) -> Any:
    import msgspec

    return msgspec.json.decode(body, type=dict[str, msgspec.Raw])[name]


def test_a_mark_covers_the_prompt_up_to_the_part_it_is_on() -> None:
    found = covered([{"role": "system", "content": [part(LONG, MARK)]}, {"role": "user", "content": "Hi"}])
    assert len(found) == 1 and found[0][1] == 300
    assert found[0][0].startswith("<|system|>" + LONG.strip()[:40]) and "Hi" not in found[0][0]
    inner = covered([{"role": "user", "content": [part("one two", MARK), part("three four")]}])
    assert inner[0][0].rstrip("\n") == "<|user|>one two"


def test_of_several_marks_those_count_that_no_longer_life_covers() -> None:
    def asked(*marks: dict[str, str] | None) -> list[tuple[str, int]]:
        texts = ("alpha", "beta", "gamma")
        return covered(
            [{"role": "user", "content": [part(text, mark)]} for text, mark in zip(texts, marks, strict=True)]
        )

    assert [kept[1] for kept in asked(MARK, MARK, MARK)] == [300]
    assert [kept[1] for kept in asked(HOUR, None, MARK)] == [3600, 300]
    assert [kept[1] for kept in asked(MARK, None, HOUR)] == [3600]
    both = asked(HOUR, None, MARK)
    assert "alpha" in both[0][0] and "beta" not in both[0][0] and "gamma" in both[1][0]


def test_a_mark_on_a_tool_covers_the_tools_with_the_system_prompt() -> None:
    tools = [{"type": "function", "function": {"name": "f"}, "cache_control": MARK}]
    found = covered([{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}], tools=tools)
    assert '"name": "f"' in found[0][0] and "Hi" not in found[0][0]


def test_a_mark_on_a_whole_message_of_a_tool_is_honoured() -> None:
    said: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": "a", "content": "42", "cache_control": HOUR},
        {"role": "user", "content": "?"},
    ]
    kept, seconds = covered(said)[0]
    assert kept.startswith("<|tool|>42") and "?" not in kept and seconds == 3600


def test_a_beginning_that_the_template_refuses_is_not_kept() -> None:
    template = "{% if messages[-1]['role'] != 'user' %}{{ raise_exception('user last') }}{% endif %}x"
    form = PromptFormat(HELLO.tokenizer, template, {})
    body = json.dumps({"model": "m", "messages": [{"role": "system", "content": [part("a", MARK)]}]}).encode()
    request = read_chat("application/json", body)
    assert kept_prefixes(marks_of(request, body), request, [{"role": "system", "content": "a"}], form, {}, [1]) == ()


@pytest.mark.parametrize("mark", [{"type": "forever"}, {"type": "ephemeral", "ttl": "1d"}, "ephemeral"])
def test_a_mark_that_cannot_be_read_is_refused_by_name(mark: object) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [part("a", mark)]}]}).encode()  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match='cache_control must be {"type": "ephemeral"}'):
        marks_of(read_chat("application/json", body), body)


@pytest.mark.parametrize(("count", "fits"), [(4, True), (5, False)])
def test_more_than_four_marks_are_refused(count: int, fits: bool) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [part("a", MARK)] * count}]}).encode()
    request = read_chat("application/json", body)
    if fits:
        assert len(marks_of(request, body)) == 1
    else:
        with pytest.raises(InvalidRequest, match="given 5 times; at most 4"):
            marks_of(request, body)


async def test_messages_marks_reach_the_prompt_and_a_prompt_without_any_has_none() -> None:
    asked = {"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    for system, kept in ((LONG, 0), ([part(LONG, HOUR)], 1)):
        chat = read_messages_as_chat("application/json", json.dumps({**asked, "system": system}).encode())
        prompt = await prompt_of(chat, chat.chat_body, HELLO, FORM)
        assert len(prompt.kept_prefixes) == kept
        assert not kept or (0 < prompt.kept_prefixes[0].tokens < len(prompt.token_ids))
