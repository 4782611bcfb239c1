"""Bodies are searched as they are written: what is found in a text of theirs is never passed over."""

import json
from itertools import product
from typing import Any

import pytest

from contracts.guardrails.finding import About
from contracts.guardrails.policy import policy_of
from gateway.guardrails.answer_filter import AnswerFilter
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.guard_plan import GuardPlan, compile_plan
from gateway.guardrails.request_texts import RequestTexts

CARD = "4111111111111111"
KEY = "sk-abcdefghijklmnop1234"
WORDS = (
    CARD,
    "4111 1111 1111 1111",
    "mail ada@example.com now",
    "+1 415 555 2671",
    "DE89370400440532013000",
    "123-45-6789",
    f"the key is {KEY}",
    "http://user:pass-word@host",
    "aB3dE6gH9jK2mN5pQ8sT1vW4xY7z",
    "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
    "the blue\nmoon",
    'say "qababz"',
)
HEADS: tuple[dict[str, Any], ...] = ({}, {"id": "choices", "x": '"choices"'}, {"choices": [], "id": CARD})
BESIDE = ("", "x", "0", "4", " 4", "-", "+", "\n", "\t", '"', "/", "\\", "\b", "é", "\ufeff", "http://", "A")


def plan_of(direction: str = "both", *, action: str = "redact", **more: Any) -> GuardPlan:
    stages = [
        {"name": "pii", "detector": "pii", "direction": direction, "action": action},
        {"name": "secrets", "detector": "secrets", "direction": direction, "action": action},
        {
            "name": "deny",
            "detector": "deny",
            "direction": direction,
            "action": action,
            "settings": {"keywords": ["blue moon"], "expressions": {"code": 'q(?:ab)+z"?', **more}},
        },
    ]
    return compile_plan([policy_of("p", {"stages": stages})], DetectorDependencies())


PLAN = plan_of()


def bodies_with(text: str) -> list[Any]:
    function = {"name": "f", "arguments": json.dumps({"a": text, "b": [1]})}
    return [
        {"model": "m", "messages": [{"role": "user", "content": text}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "4"}, {"type": "text", "text": text}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": function}]}], "n": 1},
        {"messages": [{"role": "tool", "content": "no"}], "tools": [{"function": {"description": text, "name": "f"}}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "input": {text: 1}}]}]},
    ]


@pytest.mark.parametrize("is_ascii", [True, False])
def test_what_is_found_in_a_text_is_found_in_its_body(is_ascii):
    screen, passed, found = PLAN.input, 0, 0
    for word, before, behind in product(WORDS, BESIDE, BESIDE[::4]):
        for fields in bodies_with(before + word + behind):
            body = json.dumps(fields, ensure_ascii=is_ascii, separators=(",", ":")).encode()
            if screen.finds_nothing_in(body):
                passed += 1
                assert not screen.check(RequestTexts(body).shown).verdicts, body
            else:
                found += 1
    assert 0 < passed < found


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        'line\nby "line"\tin a/path',
        "4111 is no card",
        "0000000000000000009 requests",
        "x" * 40,
        "é 这个，项目 ４１１",
    ],
)
def test_a_body_in_which_nothing_is_found_passes_as_it_is_written(text):
    for fields in bodies_with(text)[:2]:
        assert PLAN.input.finds_nothing_in(json.dumps(fields, ensure_ascii=False).encode())


@pytest.mark.parametrize("text", ["\\", "\b", "\x00"])
def test_what_takes_more_than_a_search_is_left_to_the_look_at_each_text(text):
    assert not PLAN.input.finds_nothing_in(json.dumps(bodies_with(text)[0]).encode())


def test_an_expression_about_the_ends_of_a_text_needs_each_text():
    plan = plan_of("input", start="^secret")
    assert not plan.input.finds_nothing_in(b'{"messages":[{"role":"user","content":"nothing"}]}')


@pytest.mark.parametrize("word", WORDS)
async def test_what_is_found_in_an_answer_never_passes(word):
    for head, text in product(HEADS, (word, f"a\n{word}\n")):
        fields = {**head, "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}], "usage": {}}
        body = json.dumps(fields).encode()
        passing = AnswerFilter(PLAN.output, About())
        assert not passing.passes_whole(body)
        assert word not in json.loads(await passing.judge_body(body))["choices"][0]["message"]["content"]


def test_an_id_before_the_choices_of_an_answer_is_none_of_its_texts():
    fields = {"id": "aB3dE6gH9jK2mN5pQ8sT1vW4xY7z", "choices": [{"message": {"content": "fine"}}]}
    assert AnswerFilter(PLAN.output, About()).passes_whole(json.dumps(fields).encode())
