"""The structure's figures, on small trees whose figures are known."""

import ast
from pathlib import Path

import pytest

from bench.structure import ways
from tollkeeper.supply.structure import (
    complexity,
    count_classes,
    count_lines,
    files_of,
    functions_in,
    import_cycles,
    package_entries,
    report,
)


@pytest.fixture
def tree(tmp_path: Path):
    def write(**files: str) -> list[Path]:
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            (path.parent / "__init__.py").touch()
            path.write_text(text)
        return files_of(["p", "q"], tmp_path)

    return write


def test_a_circle_of_three_modules_is_one_cycle(tree, tmp_path):
    files = tree(p__a="from p import b\n", p__b="import q.c\n", q__c="from p.a import x\n", q__d="import p.a\n")
    assert import_cycles(files, tmp_path) == [["p.a", "p.b", "q.c"]]


@pytest.mark.parametrize(
    "back",
    [
        "def late():\n    from p import a\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p import a\n",
    ],
)
def test_a_circle_that_closes_later_counts_as_deferred_only(tree, tmp_path, back):
    files = tree(p__a="from p import b\n", p__b=back)
    assert import_cycles(files, tmp_path) == []
    assert import_cycles(files, tmp_path, deferred=True) == [["p.a", "p.b"]]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return 1", 1),
        ("return 1 if x else 2", 2),
        ("if x and y or z:\n        pass\n    elif x:\n        pass\n    else:\n        pass", 5),
        ("return [one for one in x if one if x]", 4),
        ("try:\n        pass\n    except ValueError:\n        pass\n    except TypeError:\n        pass", 3),
        ("match x:\n        case 1:\n            pass\n        case _:\n            pass", 3),
        ("for _ in x:\n        while y:\n            pass", 3),
        ("def inner():\n        return x if y else z\n    return inner", 1),
    ],
)
def test_complexity_counts_branches_of_the_function_itself(body, expected):
    (function,) = ast.parse(f"def f(x, y, z):\n    {body}\n").body
    assert isinstance(function, ast.FunctionDef)
    assert complexity(function) == expected


def test_functions_classes_lines_and_entries_are_counted(tree, tmp_path):
    files = tree(
        p__a="class A:\n    def __init__(self, x, /, y, *, z):\n        def inner(q): ...\n",
        p__b="",
        p__deep__c="def f(): ...\n",
    )
    found = {one.name: one.parameters for one in functions_in(files, tmp_path)}
    assert found == {"A.__init__": 3, "A.__init__.inner": 1, "f": 0}
    assert (count_classes(files), count_lines(files)) == (1, 4)
    assert package_entries(files, tmp_path) == {"p": 3, "p/deep": 1}


def test_a_way_is_a_public_entry_that_is_handed_a_chat_and_hands_nothing_back(tree, tmp_path):
    taken = "exchange: Exchange, operation: Operation"
    files = tree(
        p__a=f"class Way:\n    def __init__(self, exchange: Exchange, *, request: 'ChatRequest | None'): ...\n"
        f"    def cancel(self): ...\n"
        f"    async def go(self, {taken}) -> None: ...\n    def _go(self, {taken}) -> None: ...\n"
        f"    def note(self, exchange: Exchange) -> None: ...\n    def key(self, {taken}) -> str: ...\n"
        f"def take({taken}) -> Way | None: ...\nclass _Run:\n    def go(self, {taken}) -> None: ...\n",
    )
    assert ways(files, tmp_path) == ["p.a.Way.__init__", "p.a.Way.go", "p.a.take"]


@pytest.mark.drill
def test_the_report_names_at_most_ten_of_each():
    lines = report()
    heads = [at for at, line in enumerate(lines) if not line.startswith(" ")]
    assert len(heads) == 3
    assert all(end - start <= 11 for start, end in zip(heads, [*heads[1:], len(lines)], strict=True))
