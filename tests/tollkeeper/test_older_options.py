"""Older names of options and commands: still accepted, and named nowhere in help."""

from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from tollkeeper.cli import app
from tollkeeper.older_options import OLDER_OPTIONS, with_new_names


def parsed(*words: str) -> tuple[Any, list[str]]:
    """Return the command that words call, and the arguments that it parses."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("tollkeeper", list(words), resilient_parsing=True)
    rest = [*context._protected_args, *context.args]
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, list(rest), parent=context, resilient_parsing=True)
        rest = [*getattr(context, "_protected_args", []), *context.args] if hasattr(command, "commands") else rest
    return command, rest


@pytest.mark.parametrize("command", sorted(OLDER_OPTIONS))
def test_the_new_name_of_an_option_is_one_of_its_command(command: str) -> None:
    subcommand = {"gpu": "gpu ledger"}.get(command, command)
    found, _ = parsed(*subcommand.split())
    names = {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for older, newer in OLDER_OPTIONS[command].items():
        assert newer in names and older not in names


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("gpu", "ledger", "--last", "5"), ["--hours", "5"]),
        (("request", "find", "error:x", "--last=2"), ["error:x", "--hours=2"]),
        (("plan", "--made", "3", "--gap-p95-ms", "50"), ["--generate", "3", "--inter-token-p95-ms", "50"]),
        (("books", "list", "--month", "2027-01"), ["--month", "2027-01"]),
    ],
)
def test_an_older_name_is_read_as_the_new_one(words: tuple[str, ...], wanted: list[str]) -> None:
    _, arguments = parsed(*words)
    assert arguments == wanted


def test_what_follows_two_hyphens_is_not_an_option() -> None:
    assert with_new_names(("request",), ["find", "--", "--last"]) == ["find", "--", "--last"]


@pytest.mark.parametrize(
    "words", [("prices", "set"), ("rates", "set"), ("standard-costs", "set"), ("alerts", "deliveries")]
)
def test_an_older_command_has_help_and_is_not_listed(words: tuple[str, str]) -> None:
    group, older = words
    assert CliRunner().invoke(app, [group, older, "--help"]).exit_code == 0
    listed = CliRunner().invoke(app, [group, "--help"]).stdout.partition("Commands:")[2]
    assert listed and f"\n  {older} " not in listed
