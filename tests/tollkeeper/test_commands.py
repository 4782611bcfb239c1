"""Commands that are loaded when they are asked for: named as they name themselves, and nothing else comes with them."""

import subprocess
import sys
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

from tollkeeper import cost
from tollkeeper.cli import app
from tollkeeper.commands import COMMANDS, LazyCommand

ALL = (*COMMANDS, *cost.LAZY)


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_a_command_is_listed_with_its_own_words(command: LazyCommand) -> None:
    found = getattr(import_module(command.module), command.attribute)
    own = found.info.help if isinstance(found, typer.Typer) else found.__doc__.split("\n\n")[0]
    assert command.help.split() == str(own).split()


def test_every_command_is_there_once_and_answers() -> None:
    names = [command.name for command in COMMANDS]
    assert len(set(names)) == len(names)
    listed = CliRunner().invoke(app, ["--help"])
    assert listed.exit_code == 0 and all(name in listed.output for name in names)
    inner = CliRunner().invoke(app, ["cost", "reprice", "--help"])
    assert inner.exit_code == 0 and "Compute what past usage would cost" in inner.output and "--card" in inner.output
    alone = CliRunner().invoke(app, ["doctor", "--help"])
    assert alone.exit_code == 0 and "--port-base" in alone.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cost", "reprot"], "No such command 'reprot'"),
        (["doctor", "--nonsense"], "No such option"),
        (["keys"], "Usage"),
        (["nothing"], "No such command 'nothing'"),
    ],
)
def test_what_is_no_command_is_refused_with_status_2(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2 and said in result.output


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("tollkeeper.cli", ("sqlalchemy", "clickhouse_connect", "pydantic", "httpx", "numpy", "fastapi")),
        ("tollkeeper.cost", ("sqlalchemy", "genai_prices", "pyarrow", "numpy", "pandas", "fastapi")),
    ],
)
def test_asking_for_little_loads_little(module: str, heavy: tuple[str, ...]) -> None:
    script = f"import sys, {module}; print(*(name for name in {heavy!r} if name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
