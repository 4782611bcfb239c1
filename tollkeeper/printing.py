"""Output of commands: tables for people, JSON for programs, one red line for an error."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from contracts.errors import TollkeeperError

_GAP: Final = 2  # spaces between columns
_WRAPPED: Final = 24  # minimum width in characters of a column that is wrapped
_STYLES = {
    "ok": "green",
    "warn": "yellow",
    "fail": "red",
    "active": "green",
    "revoked": "red",
    "expired": "yellow",
    "inactive": "yellow",
}


@contextmanager
def one_line_errors(status: int = 2) -> Iterator[None]:
    """Print a TollkeeperError of the `with` block as one line on stderr, and exit with `status`."""
    try:
        yield
    except TollkeeperError as error:
        Console(stderr=True).print(Text(f"tollkeeper: {error.message}", style="red"), soft_wrap=True)
        raise typer.Exit(status) from error


def print_json(value: object) -> None:
    """Print one JSON document to stdout."""
    typer.echo(json.dumps(value, indent=2))


def said_to_people(as_json: bool) -> Callable[[str], None]:
    """Return the function that prints a command's progress; it prints nothing if the output is JSON."""
    return say_nothing if as_json else typer.echo


def say_nothing(line: str) -> None:
    """Do nothing."""


def print_table(
    columns: Sequence[str], rows: Iterable[Mapping[str, Any]], cell: Callable[[Mapping[str, Any], str], str], empty: str
) -> None:
    """Print a table, or the text `empty` if there are no rows. If it is too wide, print one record per row."""
    texts = [[cell(row, column) for column in columns] for row in rows]
    console = Console()
    if not texts:
        console.print(Text(empty))
    elif _fits(columns, texts, console.width):
        console.print(_table(columns, texts))
    else:
        for number, values in enumerate(texts):
            typer.echo("\n" * (number > 0), nl=False)
            print_record(dict(zip(columns, values, strict=True)))


def print_record(fields: Mapping[str, str]) -> None:
    """Print one field per line, unwrapped, without empty fields."""
    console = Console(highlight=False)
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        if value:
            text = Text(f"{name:{width}}  ", style="bold")
            console.print(text + Text(value, style=_STYLES.get(value, "not bold")), soft_wrap=True)


def in_words(value: object) -> str:
    """Return a value of a JSON answer as people read it: yes or no, a dash for nothing, lists and objects unnested."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{str(name).replace('_', ' ')} {in_words(each)}" for name, each in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value)) or "-"
    return "-" if value in (None, "") else str(value)


def is_identity(column: str) -> bool:
    """Return whether a column has ids or names that people copy, which are never wrapped."""
    return column in ("id", "name", "version", "email") or column.endswith((" id", "_id"))


def _fits(columns: Sequence[str], texts: Sequence[Sequence[str]], width: int) -> bool:
    """Return whether a table fits the width: ids and short words unwrapped, long texts wrapped moderately."""
    needed = _GAP * (len(columns) - 1)
    for number, column in enumerate(columns):
        longest = max(len(line) for row in texts for line in (row[number].splitlines() or [""]))
        least = longest if is_identity(column) else min(longest, _WRAPPED)
        needed += max(least, *(len(word) for word in column.split()), 1)
    return needed <= width


def _table(columns: Sequence[str], texts: Iterable[Sequence[str]]) -> Table:
    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=is_identity(column))
    for row in texts:
        # Text, not markup: a name may contain square brackets.
        table.add_row(*(Text(text, style=_STYLES.get(text, ""), overflow="fold") for text in row))
    return table
