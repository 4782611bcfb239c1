"""An output that must match something does, even from a model that knows nothing."""

import json
import random
import re
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
import pytest

from backends.engine.torch_engine.engine import TorchEngine
from bench.torch_driver import Answer, run
from contracts.engine.wire import Grammar, GrammarKind
from tests.backends.engine.torch_engine.tiny_models import request

KEY = (1).to_bytes(16, "big")


def make_schema(source: random.Random, depth: int = 0) -> dict[str, object]:
    """Return a random schema whose every value is short."""
    kinds = ["string", "integer", "boolean", "null", "enum", "const", "pattern"]
    kind = source.choice(kinds + (["object", "array", "anyOf"] * 2 if depth < 2 else []))
    match kind:
        case "string":
            return {"type": "string", "minLength": source.randrange(3), "maxLength": source.randrange(3, 6)}
        case "integer":
            low = source.randrange(-50, 50)
            return {"type": "integer", "minimum": low, "maximum": low + source.randrange(100)}
        case "enum":
            return {"enum": source.sample(["red", 1, None, True, "ü"], source.randrange(1, 4))}
        case "const":
            return {"const": source.choice(["fixed", 7, {"a": [1]}])}
        case "pattern":
            return {"type": "string", "pattern": source.choice(["^[a-c]{2,4}$", "^\\d{3}-\\d{2}$", "^x?y+z{1,2}$"][:2])}
        case "object":
            names = source.sample(["a", "bb", "name", "größe", "x y"], source.randrange(1, 4))
            properties = {name: make_schema(source, depth + 1) for name in names}
            required = source.sample(names, source.randrange(len(names) + 1))
            return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        case "array":
            return {"type": "array", "items": make_schema(source, depth + 1), "minItems": 1, "maxItems": 3}
        case "anyOf":
            return {"anyOf": [make_schema(source, depth + 1) for _ in range(2)]}
    return {"type": kind}


def answer_to(engine: TorchEngine, kind: GrammarKind, text: str, **options: Any) -> Answer:
    options = {"max_tokens": 300, "temperature": 1.0, "ignore_eos": False} | options
    return run(engine, [request(1, [5, 6, 7], grammar=Grammar(kind, text), **options)])[KEY]


def test_a_hundred_random_schemas_give_valid_json(engine):
    source = random.Random(11)
    schemas = [make_schema(source) for _ in range(100)]
    asked = [
        request(
            number, [5, 6, 7], grammar=Grammar("json_schema", json.dumps(schema)), max_tokens=480,
            temperature=1.0, seed=number, ignore_eos=False,
        )
        for number, schema in enumerate(schemas)
    ]  # fmt: skip
    answers = run(engine, asked)
    for number, schema in enumerate(schemas):
        answer = answers[number.to_bytes(16, "big")]
        assert answer.account.finish_reason == "stop", (schema, answer.account.error_message)
        jsonschema.validate(json.loads(answer.text), schema)


@pytest.mark.parametrize("expression", ["[a-z]{3}-[0-9]{2}", "(yes|no), (sir|madam)", "ü{4}😀?"])
def test_a_regular_expression_is_matched_in_full(engine, expression):
    for seed in range(5):
        answer = answer_to(engine, "regex", expression, seed=seed)
        assert re.fullmatch(expression, answer.text), answer.text
        assert answer.account.finish_reason == "stop"


def test_a_choice_is_one_of_the_choices(engine):
    choices = ["left", "right", 'with "quotes"', "größer"]
    found = {answer_to(engine, "choice", json.dumps(choices), seed=seed).text for seed in range(20)}
    assert found <= set(choices)
    assert len(found) > 1


def test_a_lark_grammar_is_followed(engine):
    answer = answer_to(engine, "lark", 'start: greeting " " NAME\ngreeting: "hello" | "bye"\nNAME: /[A-Z][a-z]{2}/')
    assert re.fullmatch("(hello|bye) [A-Z][a-z]{2}", answer.text)


def test_json_object_gives_an_object(engine):
    answer = answer_to(engine, "json_object", "", logit_bias={token: -5.0 for token in range(300, 512)}, seed=3)
    if answer.account.finish_reason == "stop":
        assert isinstance(json.loads(answer.text), dict)
    assert answer.text.startswith("{")


def test_greedy_and_minimum_length_and_ignored_ends_do_not_break_a_grammar(engine):
    answer = answer_to(engine, "regex", "[ab]{3}", temperature=0.0, min_tokens=50, ignore_eos=True)
    assert re.fullmatch("[ab]{3}", answer.text)


def test_choices_of_one_request_match_each_on_its_own(engine):
    answer = answer_to(engine, "regex", "[a-z]{6}", n=4, seed=1)
    texts = [answer.choices[index].text for index in range(4)]
    assert all(re.fullmatch("[a-z]{6}", text) for text in texts)
    assert len(set(texts)) > 1


def test_a_continued_answer_goes_on_matching(engine):
    whole = answer_to(engine, "regex", "[a-z]{12}", seed=1)
    rest = answer_to(engine, "regex", "[a-z]{12}", seed=1, generated_ids=whole.token_ids[:3])
    assert rest.token_ids == whole.token_ids[3:]
    nine = engine._intake.vocabulary.tokenizer.token_to_id("9")
    wrong = answer_to(engine, "regex", "[a-z]{12}", generated_ids=[nine])
    assert wrong.account.error_code == "invalid_continuation"


@pytest.mark.parametrize(
    ("kind", "text", "named"),
    [
        ("json_schema", "{not json", "json_schema"),
        ("json_schema", '{"type": "nonsense"}', "json_schema"),
        ("json_schema", '{"type": "string", "pattern": "("}', "json_schema"),
        ("regex", "(unclosed", "regex"),
        ("lark", "start: missing_rule", "lark"),
        ("choice", "[]", "choice"),
        ("choice", '["a", 1]', "choice"),
        ("choice", "{", "choice"),
        ("choice", "[" * 100_000, "choice"),
        ("json_schema", '{"not":' * 5_000, "json_schema"),
    ],
)
def test_what_cannot_be_compiled_is_refused_by_name(engine, kind, text, named):
    account = answer_to(engine, kind, text).account
    assert (account.finish_reason, account.error_code) == ("error", "invalid_grammar")
    assert f"the {named} cannot be used" in account.error_message
    assert account.usage.total_tokens == 0


def test_a_schema_with_too_many_alternatives_is_the_callers_fault(engine):
    schema = {"type": "object", "properties": {f"p{number}": {} for number in range(1000)}}
    account = answer_to(engine, "json_schema", json.dumps(schema)).account
    assert (account.finish_reason, account.error_code) == ("error", "invalid_grammar")
    assert "the json_schema has too many alternatives" in account.error_message
