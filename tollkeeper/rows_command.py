"""`tollkeeper rows`: rows of the control database that cannot be read, listed, repaired and deleted."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from backends.http_client.control_plane import path_segment
from contracts.errors import ConfigurationError
from tollkeeper.control_client import ControlClient
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data
from tollkeeper.printing import one_line_errors, print_json, print_table

app = typer.Typer(help="Rows of the control database that cannot be read.", no_args_is_help=True)

_PATH: Final = "/v1/unreadable-rows"
_COLUMNS: Final = ("table", "id", "column", "reason", "stored")
Table = Annotated[str, typer.Argument(help="Table, as `tollkeeper rows list` shows it.")]
Row = Annotated[str, typer.Argument(help="Row id, as `tollkeeper rows list` shows it.")]


@app.command("list")
def list_all(data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """List rows that cannot be read, with the column at fault and what is stored there."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        found: list[dict[str, Any]] = client.get(_PATH)["data"]
    if as_json:
        print_json(found)
    else:
        print_table(_COLUMNS, found, _cell, "all rows can be read")


@app.command("repair")
def repair(
    table: Table,
    row: Row,
    values: Annotated[
        list[str], typer.Option("--set", help="COLUMN=VALUE, with VALUE as JSON or text; repeat for more.")
    ],
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
) -> None:
    """Set columns of an unreadable row. Refused unless the row can be read afterwards."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        client.patch(_path(table, row), {"values": dict(_stated(value) for value in values)})
    typer.echo(f"row {row} of {table} repaired")


@app.command("delete")
def delete(table: Table, row: Row, data: Data = DEFAULT_DATA, control_url: ControlUrl = "") -> None:
    """Delete an unreadable row that no other row refers to."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        client.delete(_path(table, row))
    typer.echo(f"row {row} of {table} deleted")


def _path(table: str, row: str) -> str:
    return "/".join((_PATH, path_segment(table), *(path_segment(part) for part in row.split("/"))))


def _stated(text: str) -> tuple[str, object]:
    name, is_stated, value = text.partition("=")
    if not is_stated or not name:
        raise ConfigurationError(f"--set {text!r} is not COLUMN=VALUE, such as --set 'settings={{}}'")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _cell(row: Mapping[str, Any], column: str) -> str:
    return str(row[column])
