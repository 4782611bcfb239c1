"""Every command's help and the main tables, at 80 and 120 columns, against golden files.

After a change that is meant: UPDATE_GOLDEN=1 python -m pytest tests/tollkeeper/test_golden.py, and read the diff.
"""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.tollkeeper.test_apply_command import FILE
from tollkeeper.cli import app
from tollkeeper.commands import COMMANDS
from tollkeeper.examples import EXAMPLES
from tollkeeper.resources.table import RESOURCES

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted({command.name for command in COMMANDS if not command.is_hidden})
TABLES = [resource.name for resource in RESOURCES]
_CHANGING = (
    (re.compile(r"_[0-9a-f]{32}"), "_" + "0" * 32),
    (re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}"), "2027-01-31 12:00:00"),
    (re.compile(r"…[\w-]{4}"), "…aaaa"),
)


def check(name: str, text: str) -> None:
    """Compare a text with its golden file, or write that."""
    path = GOLDEN / name
    shown = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(shown)
    assert path.exists(), f"{path} is missing; write it with UPDATE_GOLDEN=1"
    assert shown == path.read_text(), "if the change is meant, write the golden files again with UPDATE_GOLDEN=1"


def helps(command: Any, path: list[str], columns: str) -> Iterator[str]:
    """Yield the help of a command and of all below it that are listed."""
    done = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": columns}, prog_name="tollkeeper")
    assert done.exit_code == 0, done.output
    yield f"$ tollkeeper {' '.join(path)} --help\n{done.stdout}"
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            lazy = getattr(getattr(below, "callback", None), "lazy", None)
            yield from helps(lazy.load() if lazy is not None else below, [*path, name], columns)


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("name", NAMES)
def test_help_is_as_in_its_golden_file_and_no_line_is_wider_than_the_terminal(name: str, columns: str) -> None:
    root = typer.main.get_command(app)
    command = next(each for each in COMMANDS if each.name == name).load()
    text = "\n".join(helps(command, [name], columns))
    assert root is not None and all(len(line) <= int(columns) for line in text.splitlines() if not line.startswith("$"))
    check(f"help-{columns}/{name}.txt", text)


@pytest.mark.parametrize("columns", ["80", "120"])
def test_the_list_of_all_commands_is_as_in_its_golden_file(columns: str) -> None:
    done = CliRunner().invoke(app, ["--help"], env={"COLUMNS": columns}, prog_name="tollkeeper")
    assert done.exit_code == 0 and all(len(line) <= int(columns) for line in done.stdout.splitlines())
    check(f"help-{columns}/tollkeeper.txt", f"$ tollkeeper --help\n{done.stdout}")


@pytest.mark.parametrize("name", NAMES)
def test_help_is_whole_sentences_without_words_of_python(name: str) -> None:
    command = next(each for each in COMMANDS if each.name == name).load()
    for text in helps(command, [name], "80"):
        assert not re.search(r"<(str|int|float|list|path|%)", text), "a type of Python"
        assert not re.search(r"^Usage:.*(\{|\[\[)", text, re.MULTILINE), "brackets of Typer"
        summaries = text.partition("\nCommands:\n")[2].partition("\n\n")[0]
        assert not [line for line in summaries.splitlines() if line.endswith("...")], "a text that is cut"
    for path, each in leaves(command, name):
        assert [one.name for one in each.params if not one.hidden and not one.help] == [], path
        said_twice = [one.name for one in each.params if "default" in (one.help or "") and one.show_default]
        assert said_twice == [], f"{path}: the default is in the sentence already"


@pytest.mark.parametrize("path", sorted(EXAMPLES))
def test_an_example_is_a_command_with_its_own_options(path: str) -> None:
    words = shlex.split(EXAMPLES[path])
    assert words[0] == "tollkeeper" and words[1 : 1 + len(path.split())] == path.split()
    command: Any = typer.main.get_command(app)
    context = command.make_context("tollkeeper", words[1:])
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)  # refuses an unknown option and a missing argument


@pytest.mark.parametrize("columns", ["80", "120"])
def test_tables_are_as_in_their_golden_files(data: Path, tmp_path: Path, columns: str) -> None:
    file = tmp_path / "tollkeeper.yaml"
    file.write_text(FILE)
    environment = {"COLUMNS": columns, "OPS_HOOK": "https://hooks.example/T0/secret"}

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, "--data", str(data)], env=environment)
        assert done.exit_code == 0, done.output
        text: str = done.stdout
        for pattern, put in _CHANGING:
            text = pattern.sub(put, text)
        return text

    run("apply", "-f", str(file))
    for name in TABLES:
        check(f"tables-{columns}/{name}.txt", run(name, "list"))


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_an_example(name: str) -> None:
    command = next(each for each in COMMANDS if each.name == name).load()
    assert [path for path, each in leaves(command, name) if not each.epilog and path not in EXAMPLES] == []


def leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands below a command that do something, with the words that call them."""
    below = getattr(command, "commands", {})
    if not below:
        yield path, command
    for name, each in below.items():
        if not each.hidden:
            lazy = getattr(getattr(each, "callback", None), "lazy", None)
            yield from leaves(lazy.load() if lazy is not None else each, f"{path} {name}")
