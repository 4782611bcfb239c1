"""What is looked for in a model's answers: read from its chat template, or stated."""

import json

import pytest
from llguidance import LLMatcher

from backends.engine.parsers.answer_format import AnswerFormat
from backends.engine.parsers.reasoning import ReasoningTags
from contracts.engine.wire import Grammar, Sampling, Submit
from contracts.errors import ConfigurationError, InvalidRequest

THINK = ReasoningTags("<think>", "</think>")
TOOLS = json.dumps(
    [
        {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}},
        {"type": "function", "function": {"name": "ping"}},
    ]
).encode()
QWEN3 = "{{ content.split('</think>')[-1] }} within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": "


def submit(**more: object) -> Submit:
    return Submit(request_id=bytes(16), model="m", token_ids=[1], sampling=Sampling(max_tokens=1), **more)  # type: ignore[arg-type]  # the test's


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ messages }}", AnswerFormat()),
        (QWEN3, AnswerFormat(THINK, "hermes")),
        ("<tool_call>\n<function=name>", AnswerFormat()),
        ("<tool_call>{name}<arg_key>", AnswerFormat()),
        ("{{ '<|python_tag|>' }}", AnswerFormat(None, "llama3_json")),
        ('Respond in the format {"name": function name, "parameters": dictionary', AnswerFormat(None, "llama3_json")),
        ("{{ '<｜Assistant｜><think>\\n' }}{% if '</think>' in content %}", AnswerFormat(THINK)),
        ("[THINK]{{ x }}[/THINK]", AnswerFormat(ReasoningTags("[THINK]", "[/THINK]"))),
    ],
)
def test_the_chat_template_says_how_a_model_writes(template: str, expected: AnswerFormat) -> None:
    assert AnswerFormat.of(template) == expected


def test_what_is_stated_goes_before_the_template() -> None:
    assert AnswerFormat.of(QWEN3, "none", "none") == AnswerFormat()
    assert AnswerFormat.of("", "<a> </a>", "llama3_json") == AnswerFormat(ReasoningTags("<a>", "</a>"), "llama3_json")
    for tags, parser in (("<a>", "auto"), ("<a> <a>", "auto"), ("auto", "xml")):
        with pytest.raises(ConfigurationError):
            AnswerFormat.of(QWEN3, tags, parser)


def test_only_what_was_asked_for_is_looked_for() -> None:
    form = AnswerFormat.of(QWEN3)
    assert form.parser(submit(parse_reasoning=False), 0, "") is None
    assert AnswerFormat().parser(submit(tools=TOOLS), 0, "<think>") is None
    grammar = Grammar(kind="json_object", text="")
    assert form.parser(submit(grammar=grammar), 0, "<think>\n") is None
    assert form.markers(submit(parse_reasoning=False)) == frozenset()
    plain = form.parser(submit(), 0, "")
    assert plain is not None and plain.push("<tool_call>{").content == "<tool_call>{"


def test_a_prompt_that_ends_with_the_tag_has_opened_the_reasoning() -> None:
    form = AnswerFormat.of(QWEN3)
    for tail, reasoning in (("<think>\n", "a"), ("x<think>", "a"), ("<think>\n\n</think>\n\n", ""), ("a", "")):
        parser = form.parser(submit(), 0, tail)
        assert parser is not None and parser.push("a").reasoning == reasoning


@pytest.mark.parametrize("kind", ["hermes", "llama3_json"])
@pytest.mark.parametrize("choice", ["required", "function:ping", "function:look"])
def test_a_forced_call_is_a_grammar_that_can_be_compiled(kind: str, choice: str) -> None:
    grammar = AnswerFormat.of("", tool_parser=kind).grammar(submit(tools=TOOLS, tool_choice=choice))
    assert grammar is not None
    make = LLMatcher.grammar_from_lark if grammar.kind == "lark" else LLMatcher.grammar_from_json_schema
    assert not LLMatcher.validate_grammar(make(grammar.text))


@pytest.mark.parametrize(
    ("template", "more", "named"),
    [
        ("", {"tools": TOOLS, "tool_choice": "required"}, "TOLLKEEPER_ENGINE_TOOL_PARSER"),
        (QWEN3, {"tools": TOOLS, "tool_choice": "function:jump"}, "jump"),
        (QWEN3, {"tool_choice": "required"}, "no tools"),
        (QWEN3, {"tools": TOOLS, "tool_choice": "required", "grammar": Grammar(kind="regex", text="a")}, "another"),
        (
            QWEN3,
            {
                "tools": b'[{"function": {"name": "a", "parameters": {"$ref": "#/$defs/a"}}}]',
                "tool_choice": "function:a",
            },
            "ref",
        ),
    ],
)
def test_a_call_that_cannot_be_forced_is_refused_by_name(template: str, more: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        AnswerFormat.of(template).grammar(submit(**more))


def test_tools_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="tools"):
        AnswerFormat(None, "llama3_json").parser(submit(tools=b'[{"type": "function"}]'), 0, "")
