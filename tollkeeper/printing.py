"""How commands print: tables for people, JSON for machines, one red line for a failure."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from contracts.errors import TollkeeperError

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red", "active": "green", "revoked": "red", "expired": "yellow"}


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn an error of ours into one line on stderr and status 2."""
    try:
        yield
    except TollkeeperError as error:
        Console(stderr=True).print(Text(f"tollkeeper: {error.message}", style="red"), soft_wrap=True)
        raise typer.Exit(2) from error


def print_json(value: object) -> None:
    """Print one JSON document to stdout."""
    typer.echo(json.dumps(value, indent=2))


def said_to_people(as_json: bool) -> Callable[[str], None]:
    """Give what says a command's progress: to people a line each, nothing where a machine reads what follows."""
    return say_nothing if as_json else typer.echo


def say_nothing(line: str) -> None:
    """Say nothing."""


def print_table(
    columns: Sequence[str], rows: Iterable[Mapping[str, Any]], cell: Callable[[Mapping[str, Any], str], str], empty: str
) -> None:
    """Print rows under headings; `empty` where there are none."""
    table = Table(header_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column == "id")  # an id is there to be copied, in one piece
    for row in rows:
        # Text, not markup: a name may hold square brackets.
        texts = (cell(row, column) for column in columns)
        table.add_row(*(Text(text, style=_STYLES.get(text, ""), overflow="fold") for text in texts))
    Console().print(table if table.row_count else Text(empty))
