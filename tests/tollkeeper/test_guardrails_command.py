"""`tollkeeper guardrails` against a real control plane and over a file."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tollkeeper.cli import app

RULES = """
tenants: [demo]
stages:
  - {name: cards, detector: pii, direction: both, action: redact, settings: {kinds: [card]}}
  - {name: words, detector: deny, direction: output, settings: {keywords: [blue moon]}}
"""


def run(*arguments: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=typed)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "no-pii.yaml"
    path.write_text(RULES)
    return path


def test_a_guardrail_is_set_listed_tried_and_deleted(data: Path, rules: Path) -> None:
    where = ("--data", str(data))
    for word in ("created", "set"):
        assert f"guardrail no-pii {word}: cards" in run("guardrails", "set", "no-pii", str(rules), *where).output
    (listed,) = json.loads(run("guardrails", "list", "--json", *where).stdout)
    assert (listed["id"], listed["rules"]["tenants"]) == ("no-pii", ["demo"])
    tried = run("guardrails", "test", "no-pii", "it is 4111111111111111", "--json", *where)
    assert json.loads(tried.stdout)["text"] == "it is [card]"
    assert "guardrail no-pii deleted" in run("guardrails", "delete", "no-pii", *where).output
    assert "no guardrails" in run("guardrails", "list", *where).output


def test_rules_of_a_file_are_tried_without_a_control_plane(rules: Path) -> None:
    blocked = run("guardrails", "test", "x", "-", "--file", str(rules), "--direction", "output", typed="a blue moon")
    assert (blocked.exit_code, "blocked by words" in blocked.output) == (1, True)
    assert "nothing is found" in run("guardrails", "test", "x", "fine", "--file", str(rules)).output
    wrong = run("guardrails", "test", "x", "fine", "--file", str(rules), "--direction", "up")
    assert (wrong.exit_code, "input or output" in wrong.output) == (2, True)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("tenants: [demo]\nstages: [\n", "line 3: expected the node content"),
        ("stages:\n  - {name: a, detector: pii, action: block, action: flag}\n", "line 2: 'action' is given twice"),
    ],
)
def test_a_mistake_in_a_file_is_named_by_its_line(data: Path, rules: Path, written: str, said: str) -> None:
    rules.write_text(written)
    refused = run("guardrails", "create", "wrong", str(rules), "--data", str(data))
    assert refused.exit_code == 2 and said in refused.stderr and refused.stderr.count("\n") == 1
