"""Grammars are refused above each limit, by the limit's name, and compile at it."""

import json

import pytest

from backends.engine.torch_engine.engine import TorchEngine
from bench.torch_driver import run
from contracts.engine.wire import Grammar, GrammarKind
from tests.backends.engine.torch_engine.tiny_models import request

KEY = (1).to_bytes(16, "big")


def properties(count: int) -> str:
    names = [f"p{number}" for number in range(count)]
    return json.dumps({"type": "object", "properties": {name: {"type": "null"} for name in names}, "required": names})


def rules(count: int) -> str:
    return (
        "start: r1\n"
        + "".join(f'r{number}: r{number + 1} "b"\n' for number in range(1, count - 1))
        + (f'r{count - 1}: "a"\n')
    )


def lark(count: int) -> str:
    return "start: " + " | ".join(f'"w{number}"' for number in range(count))


def choices(count: int) -> str:
    return json.dumps([f"c{number}" for number in range(count)])


CASES: list[tuple[GrammarKind, str, str, str]] = [
    ("json_schema", properties(1000), properties(1001), "1001 properties, more than 1000"),
    ("lark", lark(5000), lark(5001), "5001 alternatives, more than 5000"),
    ("lark", rules(1000), rules(1001), "1001 rules, more than 1000"),
    ("choice", choices(5000), choices(5001), "5001 choices, more than 5000"),
    ("regex", "a" * 8192, "a" * 8193, "8193 bytes, more than 8192"),
    ("lark", f"start: /{'a' * 8192}/", f"start: /{'a' * 8193}/", "8193 bytes of regular expressions, more than 8192"),
    ("lark", f"start: %json {properties(1000)}\n", f"start: %json {properties(1001)}\n", "1001 properties"),
    ("lark", 'start: "b" ' + '"a"? ' * 400, 'start: "b" ' + '"a"? ' * 1001, "1001 repetitions"),
    (
        "json_schema",
        json.dumps({"type": "string", "pattern": "a" * 8192}),
        json.dumps({"type": "string", "pattern": "a" * 8193}),
        "8193 bytes of regular expressions",
    ),
    (
        "json_schema",
        json.dumps({"enum": list(range(5000))}),
        json.dumps({"enum": list(range(5001))}),
        "5001 alternatives",
    ),
    (
        "json_schema",
        json.dumps({"const": "a", "description": "d" * 200_000}),
        json.dumps({"const": "a", "description": "d" * 300_000}),
        "bytes, more than 262144",
    ),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_limits_of_a_grammar(engine: TorchEngine, case: int) -> None:
    kind, fits, exceeds, words = CASES[case]
    taken = run(engine, [request(1, [5], grammar=Grammar(kind, fits), max_tokens=2, ignore_eos=False)])[KEY].account
    assert "more than" not in taken.error_message and "cannot be used" not in taken.error_message
    refused = run(engine, [request(1, [5], grammar=Grammar(kind, exceeds), max_tokens=2)])[KEY].account
    assert refused.error_code == "invalid_grammar"
    assert words in refused.error_message and "make it smaller" in refused.error_message


def test_thousands_of_rules_that_begin_with_each_other_do_not_end_the_process(engine: TorchEngine) -> None:
    account = run(engine, [request(1, [5], grammar=Grammar("lark", rules(4000)))])[KEY].account
    assert account.error_code == "invalid_grammar"
