"""`tollkeeper store`: checks the store, repairs its rollups, moves it."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from backends.store.checks.check import DEFAULT_HOURS, CheckReport, check_store
from backends.store.move import move_store
from backends.store.rebuild import RebuildPlan, list_rollups, plan_rebuild, rebuild
from contracts.errors import ConfigurationError
from migrations.store import migrate_store, read_migrations
from tollkeeper.open_installation import open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table, said_to_people, say_nothing

app = typer.Typer(help="The telemetry store: check it, repair its rollups, move it.", no_args_is_help=True)

TARGET_PASSWORD = "TOLLKEEPER_STORE_MOVE_PASSWORD"


@app.command("check")
def check(
    hours: Annotated[
        int, typer.Option(min=1, max=72, help="How far back to compare engines' tokens with records, in hours.")
    ] = DEFAULT_HOURS,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Check the store: damage, missing records, wrong rollups, engines' tokens without a record; journals and spools.

    Prints one line for each finding. Status 1 if there is any.
    """
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        say = say_nothing if as_json else _remark
        report = check_store(opened.store, opened.turns, hours, say, data)
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        _print(report)
    raise typer.Exit(1 if report.findings else 0)


@app.command("rebuild")
def rebuild_command(
    rollup: Annotated[str, typer.Argument(metavar="ROLLUP", help="The rollup's table, such as tenant_cost_day.")] = "",
    is_listing: Annotated[bool, typer.Option("--list", help="List all rollups with their base tables.")] = False,
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Apply the rebuild without asking.")] = False,
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Repair a rollup that differs from its base table, as `store check` reports.

    Shows the changes and asks. Safe while requests are served; can be repeated.
    """
    with one_line_errors():
        if is_listing == bool(rollup):
            raise ConfigurationError("name one rollup, such as tenant_cost_day, or list all with --list")
        with open_installation(data, store_url, os.environ) as opened:
            if is_listing:
                found = [{"rollup": view.target, "source": view.source} for view in list_rollups(opened.store)]
            else:
                say = said_to_people(as_json)
                plan = plan_rebuild(opened.store, opened.turns, rollup)
                if not as_json:
                    _print_plan(plan)
                is_applied = bool(plan.changes) and not is_dry and (is_confirmed or (not as_json and _asked()))
                if is_applied:
                    rebuild(opened.store, opened.turns, plan, say_nothing)
    if is_listing:
        if as_json:
            print_json(found)
        else:
            print_table(("rollup", "source"), found, lambda row, column: str(row[column]), "no rollups; migrate first")
    elif as_json:
        print_json({**msgspec.to_builtins(plan), "applied": is_applied})
    elif is_applied:
        say(f"rebuilt {rollup} from {plan.source}")
        if plan.derived:
            say(f"derived from it, rebuild these next: {', '.join(plan.derived)}")
    elif plan.changes:
        say("not applied; add --yes to apply it")


def _print_plan(plan: RebuildPlan) -> None:
    if not plan.changes:
        typer.echo(f"nothing to correct: {plan.rollup} matches {plan.source}")
    for change in plan.changes:
        typer.echo(change.line())


def _asked() -> bool:
    return typer.confirm("Apply?", default=False)


@app.command("move")
def move(
    to: Annotated[str, typer.Option("--to", help="The other store's URL, such as http://127.0.0.1:8123.")],
    to_database: Annotated[str, typer.Option("--to-database", help="Database name there.")] = "tollkeeper",
    to_user: Annotated[str, typer.Option("--to-user", help="User with the right to create tables there.")] = "writer",
    to_data: Annotated[
        Path | None, typer.Option("--to-data", help="Data directory of the other store, if that is an embedded one.")
    ] = None,
    to_cluster: Annotated[
        str, typer.Option("--to-cluster", help="Name of the ClickHouse cluster there to spread the tables over.")
    ] = "",
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Copy everything into another store while this one is in use, then switch the collector.

    With --to-cluster the other store is a cluster with ClickHouse Keeper. The other store's password is in
    TOLLKEEPER_STORE_MOVE_PASSWORD, or with --to-data in its secrets.
    """
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        secrets = SecretFiles((to_data or data) / "secrets")
        password = os.environ.get(TARGET_PASSWORD)
        address = StoreAddress.resolve(to, to_database, "writer", secrets, user=to_user, password=password)
        say = said_to_people(as_json)
        migrate_store(address, read_migrations(), wait_seconds=0, say=say_nothing, cluster=to_cluster)
        target = opened.in_store(address)
        try:
            report = move_store(opened.store, target, opened.turns, opened.location, say)
        finally:
            target.close()
    if as_json:
        print_json({"to": to, "rows": report.rows, "arrived_rows": report.arrived_rows})
    else:
        typer.echo(
            f"moved. From the next start on give every process TOLLKEEPER_STORE_URL={to}, "
            "TOLLKEEPER_STORE_USER and TOLLKEEPER_STORE_PASSWORD, and restart the dashboard now; "
            "then run: tollkeeper store check"
        )


def _print(report: CheckReport) -> None:
    for line in report.tokens:
        typer.echo(line.line())
    for hour in report.gpu:
        typer.echo(hour.line())
    for finding in report.findings:
        typer.echo(finding.line())
    if not report.findings:
        typer.echo(
            "no problems: no damage, no missing records, rollups match, all tokens and GPU time are accounted for"
        )


def _remark(line: str) -> None:
    typer.echo(f"checking {line}", err=True)
