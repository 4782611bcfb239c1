"""The threat model against the tests: every defence names one, and it exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
DEFENDED = PAGE.partition("## What is defended")[2].partition("## What is not defended")[0]


def _named_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    found = {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    # A state machine of hypothesis is a test by the name that it is given.
    given = {
        target.id
        for one in tree.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    return {name for name in found | given if name.lower().startswith("test")}


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_every_test_that_a_defence_points_to_exists(file: str, test: str) -> None:
    assert test in _named_in(ROOT / file)


def test_every_defence_points_to_a_test() -> None:
    rows = [line for line in DEFENDED.splitlines() if line.startswith("| ") and not line.startswith("| threat |")]
    assert len(rows) > 20
    assert [row for row in rows if not re.search(r"`tests/[\w/]+\.py::\w+` \|$", row)] == []


def test_what_is_not_defended_is_said() -> None:
    assert len(re.findall(r"^- \*\*", PAGE.partition("## What is not defended")[2], re.MULTILINE)) >= 5
