"""`tollkeeper alerts`: raised alerts, notifications, silences and test notifications, via the control plane's API."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import typer
from sqlalchemy.orm import Session

from analytics.quality.report import quality_report
from backends.control.alert_log import alert_facts, list_alerts
from backends.control.database import ControlDatabase
from backends.http_client.control_plane import path_segment
from migrations.settings import MigrationSettings
from tollkeeper.control_client import ControlClient
from tollkeeper.open_installation import open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, ControlUrl, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table
from tollkeeper.resources.apps import group_of

app = typer.Typer(help="Alerts, notifications and silences.", no_args_is_help=True)
rules = group_of("alert-rules")
channels = group_of("channels")
silences = typer.Typer(help="Silences: suppress notifications of alerts for a time.", no_args_is_help=True)
# Older names of `alert-rules` and `channels`.
app.add_typer(rules, name="rules", hidden=True)
app.add_typer(channels, name="channels", hidden=True)
app.add_typer(silences, name="silences")

SilenceId = Annotated[str, typer.Argument(metavar="ID", help="The silence's id, sil_...; `silences list` shows it.")]
ChannelId = Annotated[str, typer.Argument(metavar="ID", help="The channel's id; `tollkeeper channels list` shows it.")]
AlertId = Annotated[str, typer.Argument(metavar="ID", help="The alert's id, alt_...; `list` shows it.")]
Tenant = Annotated[
    str, typer.Option(help="The tenant it belongs to (default: none; it covers the whole installation).")
]
_CHANNELS: Final = "/v1/alert-channels"
_SILENCES: Final = "/v1/alert-silences"
_DELIVERIES: Final = "/v1/alert-deliveries"
_ON_THE_WAY: Final = ("waiting", "sending")
_POLL_SECONDS: Final = 0.5


@silences.command("create")
def create_silence(
    hours: Annotated[float, typer.Option(min=0.01, max=24 * 366, help="Duration in hours, from now.")],
    rule: Annotated[str, typer.Option(help="Only alerts of this rule (default: all).")] = "",
    subject: Annotated[
        str,
        typer.Option(
            help="Only alerts whose fingerprint starts with this (default: all); `alerts list --json` shows it."
        ),
    ] = "",
    comment: Annotated[str, typer.Option(help="Reason, shown to others.")] = "",
    tenant: Tenant = "",
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Create a silence. Alerts that are still open when it expires are sent then."""
    ends_at = (datetime.now(UTC) + timedelta(hours=hours)).isoformat()
    body = {"tenant": tenant, "rule": rule, "subject": subject, "comment": comment, "ends_at": ends_at}
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        created = client.post(_SILENCES, body)
    _say(created, f"silence {created['id']} until {created['ends_at']}", as_json)


@silences.command("list")
def list_silences(data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """List silences."""
    _list(_SILENCES, ("id", "rule_id", "subject", "ends_at", "comment"), data, control_url, as_json)


@silences.command("delete")
def delete_silence(
    silence: SilenceId, data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False
) -> None:
    """End a silence."""
    _delete(_SILENCES, silence, data, control_url, as_json)


@app.command("test")
def test(
    channel: ChannelId,
    wait_seconds: Annotated[float, typer.Option(min=0, max=600, help="Seconds to wait for the delivery.")] = 20,
    data: Data = DEFAULT_DATA,
    control_url: ControlUrl = "",
    as_json: AsJson = False,
) -> None:
    """Send a test notification to a channel and print the result. Status 1 if it was not delivered."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        sent = client.post(f"{_CHANNELS}/{path_segment(channel)}/test", {})
        deadline = time.monotonic() + wait_seconds
        while sent["state"] in _ON_THE_WAY and not sent["last_error"] and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            sent = next((each for each in client.get(_DELIVERIES)["data"] if each["id"] == sent["id"]), sent)
    is_delivered = sent["state"] == "delivered"
    hint = "" if sent["last_error"] or is_delivered else "; does the analytics process run? (`tollkeeper up`)"
    said = f"{channel}: {sent['state']}{': ' + sent['last_error'] if sent['last_error'] else ''}{hint}"
    _say(sent, said, as_json)
    raise typer.Exit(0 if is_delivered else 1)


@app.command("list")
def list_raised(
    is_open: Annotated[
        bool, typer.Option("--open/--all", help="Only open alerts, or resolved ones too (default open).")
    ] = True,
    tenant: Annotated[str, typer.Option(help="Only this tenant (default: all).")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of alerts, latest first.")] = 100,
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """List alerts, latest first."""
    with one_line_errors(), _control_session(data) as session:
        rows = [alert_facts(row) for row in list_alerts(session, tenant=tenant, is_open=is_open, limit=limit)]
    if as_json:
        print_json(rows)
    else:
        columns = ("severity", "rule", "summary", "cause", "opened_at", "resolved_at", "id")
        print_table(columns, rows, _cell, "no alerts" + (" are open; --all shows past ones" if is_open else ""))


@app.command("acknowledge")
def acknowledge(
    alert: AlertId, data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False
) -> None:
    """Acknowledge an alert. A second acknowledgement changes nothing; the alert stays open until its condition ends."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        taken = client.post(f"/v1/alerts/{path_segment(alert)}/acknowledge", {})
    _say(taken, f"alert {alert}: acknowledged by {taken['acknowledged_by']} at {taken['acknowledged_at']}", as_json)


@app.command("deliveries", hidden=True)  # an older name
@app.command("notifications")
def list_notices(data: Data = DEFAULT_DATA, control_url: ControlUrl = "", as_json: AsJson = False) -> None:
    """List the latest notifications, with their delivery state and last error."""
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        rows = client.get(_DELIVERIES)["data"]
    if as_json:
        print_json(rows)
    else:
        columns = ("channel", "event", "state", "attempts", "created_at", "last_error")
        print_table(columns, rows, _cell, "no notifications yet")


@app.command("quality")
def quality(
    hours: Annotated[int, typer.Option(min=1, max=24 * 31, help="Window to judge, in hours.")] = 24,
    reference_days: Annotated[
        int, typer.Option(min=1, max=90, help="Reference period before the window, in days.")
    ] = 7,
    tenant: Annotated[str, typer.Option(help="Only this tenant (default: all).")] = "",
    model: Annotated[str, typer.Option(help="Only this model (default: all).")] = "",
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Report changes in answers: lengths, refusals, finish reasons, tool calls, schema failures."""
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        window, reference = timedelta(hours=hours), timedelta(days=reference_days)
        found = quality_report(
            opened.store, datetime.now(UTC), window, reference, tenant=tenant or None, model=model or None
        )
    rows = [each.as_json() for each in found]
    if as_json:
        print_json(rows)
        return
    flat = [
        {
            "tenant": each.tenant,
            "model": each.model,
            **{name: _spoken(value) for name, value in change.as_json().items()},
        }
        for each in found
        for change in each.changes
    ]
    columns = ("tenant", "model", "aspect", "verdict", "current", "reference", "psi", "ks")
    print_table(columns, flat, _cell, "no answers in this window")


def _spoken(value: object) -> object:
    return value.replace("_", " ") if isinstance(value, str) else value


@contextmanager
def _control_session(data: Any) -> Iterator[Session]:
    database = ControlDatabase(MigrationSettings(data=data).database_address)
    try:
        database.check_schema()
        with database.session() as session:
            yield session
    finally:
        database.close()


def _list(path: str, columns: tuple[str, ...], data: Any, control_url: str, as_json: bool) -> None:
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        rows = client.get_all(path)
    if as_json:
        print_json(rows)
    else:
        print_table(columns, rows, _cell, "no silences; tollkeeper alerts silences create --hours 2")


def _delete(path: str, row_id: str, data: Any, control_url: str, as_json: bool) -> None:
    with one_line_errors(), ControlClient.of_installation(data, control_url) as client:
        deleted = client.delete(f"{path}/{path_segment(row_id)}")
    _say(deleted, f"{row_id} deleted", as_json)


def _say(answer: Mapping[str, Any], said: str, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        typer.echo(said)


def _cell(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
