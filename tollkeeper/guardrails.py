"""`tollkeeper guardrails`: policies via the control plane's API, a test of a policy, and a report of findings."""

import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from analytics.guardrails import StageCount, stage_counts
from analytics.scope import Period
from backends.http_client.control_plane import path_segment
from contracts.errors import ConfigurationError, InvalidRequest
from contracts.guardrails.finding import Side
from contracts.guardrails.policy import policy_of
from gateway.guardrails.policy_trial import try_policy
from tollkeeper.control_client import ControlClient
from tollkeeper.open_installation import open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.resources.apps import group_of, read_data

app = group_of("guardrails")

PolicyName = Annotated[str, typer.Argument(metavar="ID", help="The guardrail's id.")]
_PATH = "/v1/guardrails"


@app.command("test")
def test(
    name: PolicyName,
    text: Annotated[str, typer.Argument(help="The text; '-' reads it from standard input.")],
    file: Annotated[
        Path | None, typer.Option("--file", help="Policy file to use instead of the control plane's.")
    ] = None,
    direction: Annotated[str, typer.Option(help="Direction: input or output.")] = "input",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show what a guardrail finds in a text. Status 1 if it blocks it. The text is not stored."""
    with one_line_errors():
        side = _side(direction)
        said = sys.stdin.read() if text == "-" else text
        if file is not None:
            tried = try_policy(policy_of(name, _read_rules(file)), said, side)
            found: dict[str, Any] = {"verdicts": tried.verdicts, "blocked_by": tried.blocked_by, "text": tried.text}
        else:
            with ControlClient.of_installation(data, control_url) as client:
                found = client.post(f"{_PATH}/{path_segment(name)}/test", {"text": said, "direction": side})
    if as_json:
        print_json(found)
    else:
        for verdict in found["verdicts"] or ["nothing is found"]:
            typer.echo(verdict)
        typer.echo(f"blocked by {found['blocked_by']}" if found["blocked_by"] else found["text"])
    if found["blocked_by"]:
        raise typer.Exit(1)


@app.command("report")
def report(
    hours: Annotated[float, typer.Option(min=0.01, max=9_480, help="Look-back window in hours.")] = 24,
    tenant: Annotated[str, typer.Option(help="Only this tenant (default: all).")] = "",
    dry: Annotated[bool, typer.Option("--dry", help="Only stages with dry_run.")] = False,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Count verdicts by tenant and stage, with what dry-run stages would have done."""
    with one_line_errors():
        now = datetime.now(UTC)
        period = Period(now - timedelta(hours=hours), now)
        with open_installation(data, store_url, os.environ) as opened:
            counts = stage_counts(opened.store, period, tenant or None)
    rows = [_as_json(one) for one in counts if one.is_dry_run or not dry]
    if as_json:
        print_json({"from": period.start.isoformat(), "until": period.end.isoformat(), "stages": rows})
        return
    columns = ("tenant", "stage", "direction", "action", "mode", "requests", "findings", "kinds")
    print_table(columns, rows, _report_cell, "no stage has found anything")


def _as_json(one: StageCount) -> dict[str, Any]:
    return {
        "tenant": one.tenant,
        "stage": one.stage,
        "direction": one.direction,
        "action": one.action,
        "mode": "dry" if one.is_dry_run else "live",
        "requests": one.requests,
        "of_requests": one.of_requests,
        "findings": one.findings,
        "kinds": dict(one.kinds),
    }


def _report_cell(row: Mapping[str, Any], column: str) -> str:
    if column == "requests":
        return f"{row['requests']} of {row['of_requests']}"
    return ", ".join(row["kinds"]) if column == "kinds" else str(row[column])


def _side(direction: str) -> Side:
    if direction == "input":
        return "input"
    if direction == "output":
        return "output"
    raise InvalidRequest(f"--direction is input or output, not {direction!r}")


def _read_rules(file: Path) -> dict[str, Any]:
    rules = read_data(file)
    if not isinstance(rules, dict):
        raise ConfigurationError(f"{file} must hold a guardrail's rules, such as stages: [...]")
    rules.pop("name", None)
    return rules
