"""Older names of options: accepted by the command line, but not shown in its help."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final

# By command; a group's name stands for all of its commands.
OLDER_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "books adjustments": {"--last": "--limit"},
    "gpu": {"--last": "--hours"},
    "guardrails report": {"--last": "--hours"},
    "loadtest": {"--slo-itl-ms": "--slo-inter-token-ms"},
    "plan": {"--made": "--generate", "--gap-p95-ms": "--inter-token-p95-ms"},
    "reconcile show": {"--last": "--limit"},
    "replay": {"--books": "--check-records", "--no-books": "--no-check-records"},
    "request find": {"--last": "--hours"},
}


def with_new_names(path: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments with older option names replaced by current ones, up to `--`.

    `path`: names of the command and its groups; the name of a subcommand is in `arguments`.
    """
    called = [*path, *takewhile(lambda word: not word.startswith("-"), arguments)]
    renamed: dict[str, str] = {}
    for command, names in OLDER_OPTIONS.items():
        words = command.split()
        if called[: len(words)] == words:
            renamed |= names
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [*(_renamed(one, renamed) for one in arguments[:end]), *arguments[end:]]


def _renamed(argument: str, names: Mapping[str, str]) -> str:
    name, equals, value = argument.partition("=")
    return names.get(name, name) + equals + value
