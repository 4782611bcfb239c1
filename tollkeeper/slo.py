"""`tollkeeper slos`: service level objectives via the control plane's API, and a report of their state."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from analytics.slo.report import STATUS_WORDS, slo_report
from backends.control.slos import get_slo, load_objectives, objective_of
from backends.http_client.control_plane import path_segment
from contracts.errors import ConfigurationError
from tollkeeper.control_client import ControlClient
from tollkeeper.open_installation import open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.resources.apps import group_of
from tollkeeper.resources.words import objective

app = group_of("slos")

_PATH = "/v1/slos"
_OBJECTIVES = "objectives"


@app.command("apply", hidden=True)
def apply(
    file: Annotated[Path, typer.Argument(help="YAML file with a list `objectives:`, fields as over HTTP.")],
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Create or replace the objectives of a YAML file."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        applied = [client.put(f"{_PATH}/{path_segment(name)}", body) for name, body in _objectives_in(file)]
    if as_json:
        print_json(applied)
    else:
        for each in applied:
            typer.echo(f"objective {each['id']} set: {objective(each)}")


@app.command("report")
def report(
    slo: Annotated[str, typer.Argument(metavar="ID", help="The objective's id (default: all).")] = "",
    tenant: Annotated[str, typer.Option(help="Only this tenant's objectives (default: all).")] = "",
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show objectives: good requests, remaining error budget, burn rates."""
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        opened.database.check_schema()
        with opened.database.session() as session:
            named = [objective_of(get_slo(session, slo, tenant=tenant))] if slo else None
            objectives = named or load_objectives(session, tenant=tenant)
        rows = [standing.as_json() for standing in slo_report(opened.store, objectives, datetime.now(UTC))]
    if as_json:
        print_json(rows)
    else:
        columns = ("id", "status", "target", "good", "requests", "budget left", "burning")
        print_table(columns, rows, _report_cell, "no objectives; tollkeeper slos create ID --help")


def _objectives_in(file: Path) -> list[tuple[str, dict[str, Any]]]:
    try:
        stated = yaml.safe_load(file.read_text())
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is not YAML") from error
    listed = stated.get(_OBJECTIVES) if isinstance(stated, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) and each.get("id") for each in listed):
        raise ConfigurationError(f"{file} must hold `{_OBJECTIVES}:` with a list of objectives, each with an id")
    return [(str(each["id"]), {name: _plain(value) for name, value in each.items() if name != "id"}) for each in listed]


def _plain(value: object) -> object:
    # YAML reads 99.9 as a float, whose decimal text is what was written; a Decimal of the float would not be.
    if isinstance(value, float):
        return repr(value)
    return {str(name): _plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def _report_cell(row: Mapping[str, Any], column: str) -> str:
    if column == "target":
        return f"{row['target_percent']} %"
    if column in ("good", "budget left"):
        value = row["good_percent" if column == "good" else "budget_remaining_percent"]
        return "unknown" if value is None else f"{value:.6g} %"
    if column == "burning":
        return ", ".join(each["pair"] for each in row["burn"] if each["is_burning"])
    return STATUS_WORDS[row["status"]] if column == "status" else str(row[column])
