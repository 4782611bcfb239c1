"""`tollkeeper reconcile`: compares providers' bills with recorded usage, and finds the cause of each difference."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo

import typer
from sqlalchemy.orm import Session

from analytics.books.calendars import month_period
from analytics.reconciliation.formats.reading import UnreadableBill
from analytics.reconciliation.importing import BillFile, import_bill
from analytics.reconciliation.lines import BILL_FORMATS
from analytics.reconciliation.report import CAUSE_WORDS, Reconciled, bill_as_json, keep, reconcile, reconciled_as_json
from analytics.reconciliation.stated import stated_costs
from backends.control.changes import Author
from backends.control.provider_bills import bill_names, delete_bill, get_bill, list_bills, set_bill_names
from backends.secrets.secret_files import SecretFiles
from contracts.errors import InvalidRequest
from tollkeeper.book_author import book_author
from tollkeeper.open_installation import open_control, open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table

app = typer.Typer(
    help="Compare providers' bills with recorded usage, and show the cause of each difference.", no_args_is_help=True
)

Provider = Annotated[str, typer.Argument(help="The provider, as its targets name it, such as openai or bedrock.")]
OneMonth = Annotated[str, typer.Argument(help="The month of the bill in UTC, such as 2026-11.")]
_LISTED: Final = ("id", "provider", "month", "format", "name", "lines", "skipped_lines", "billed_usd", "at")
_SUMS: Final = ("cause", "usd", "differences", "meaning")
_SHOWN: Final = ("day", "model", "target", "service_tier", "kind", "cause", "usd", "tokens")
_STATED: Final = (
    *("provider", "target", "model", "requests", "without"),
    *("stated_usd", "recorded_usd", "difference_usd"),
)
_MOST: Final = 50
_CAUSES: Final = "; ".join(
    name if name == title.lower() else f"{name} ({title[0].lower()}{title[1:]})"
    for name, (title, _) in CAUSE_WORDS.items()
)


@app.command("import")
def import_command(
    file: Annotated[Path, typer.Argument(help="CSV or JSON file as the provider exports it.")],
    month: Annotated[
        str,
        typer.Option(
            "--month", help="Month of the bill; lines outside are refused (default: month of the first line)."
        ),
    ] = "",
    provider: Annotated[
        str, typer.Option("--provider", help="Provider, as its targets name it (default: by the format).")
    ] = "",
    form: Annotated[str, typer.Option("--format", help=f"One of {', '.join(BILL_FORMATS)} (default: detected).")] = "",
    usd_rate: Annotated[
        str,
        typer.Option(
            "--usd-rate", help="Exchange rate: USD per unit of the bill's currency. Required unless the bill is in USD."
        ),
    ] = "",
    replaces: Annotated[
        bool, typer.Option("--replace", help="Replace bills of the same provider, month and format.")
    ] = False,
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Import a provider's bill, all or nothing.

    Formats: OpenAI usage and costs (JSON, CSV), Anthropic usage and cost reports (JSON), FOCUS (CSV of Azure, AWS or
    others), AWS Cost and Usage Report (CSV), Google Cloud billing export (JSON lines). A file is
    refused, with line and column, if it is truncated or has lines of another month, repeated lines, two currencies or
    amounts below 0.
    """
    now = datetime.now(UTC)
    with one_line_errors(), open_control(data, os.environ) as database:
        try:
            rate = Decimal(usd_rate) if usd_rate else None
        except InvalidOperation:
            raise InvalidRequest(
                f"--usd-rate {usd_rate[:40]!r} is not a number; give one such as 1.08", param="usd_rate"
            ) from None
        if not file.is_file():
            raise InvalidRequest(f"there is no file {file.name!r}", param="file")
        author = book_author(database, SecretFiles(data / "secrets"), os.environ, now)
        given = BillFile(file.read_bytes(), file.name, month, provider, form, rate, replaces)
        try:
            row = import_bill(database, author, given)
        except UnreadableBill as error:
            for problem in error.problems[3:]:
                typer.echo(problem, err=True)
            raise
        shown = bill_as_json(row)
    if as_json:
        print_json(shown)
    else:
        others = f", {row.skipped:,} of other services skipped" if row.skipped else ""
        typer.echo(f"{row.id}: {row.provider} {row.month}, {row.line_count:,} lines{others}, {row.billed_usd:f} USD")
        typer.echo(f"tollkeeper reconcile report {row.provider} {row.month} compares it")


@app.command("bills")
def bills_command(
    provider: Annotated[str, typer.Option("--provider", help="Only this provider (default: all).")] = "",
    month: Annotated[str, typer.Option("--month", help="Only this month, such as 2026-11 (default: all).")] = "",
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """List imported bills, oldest first."""
    with one_line_errors(), open_control(data, os.environ) as database, database.session() as session:
        shown = [bill_as_json(row) for row in list_bills(session, provider=provider, month=month)]
    print_json(shown) if as_json else _table(_LISTED, shown, "no bill was imported")


@app.command("delete")
def delete_command(
    bill: Annotated[str, typer.Argument(metavar="ID", help="The bill's id, bill_...; `bills` lists it.")],
    data: Data = DEFAULT_DATA,
) -> None:
    """Delete an imported bill. The file can be imported again."""
    now = datetime.now(UTC)
    with one_line_errors(), open_control(data, os.environ) as database:
        author = book_author(database, SecretFiles(data / "secrets"), os.environ, now)
        with database.session() as session:
            get_bill(session, bill)
            delete_bill(session, author, bill)
    typer.echo(f"{bill} is deleted")


@app.command("names")
def names_command(
    provider: Provider,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            help="KEY=TARGET: a key, project, account or resource in bills, and its target; repeat for more.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="NAME=MODEL: a model's name in bills, and the name that applications ask for; repeat for more.",
        ),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", help="Remove a mapping by its name in bills; repeat for more.")
    ] = None,
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Map names in a provider's bills to models and targets here; without options, list them.

    If no key is mapped, all lines count as gateway traffic. Once one is mapped, lines of other keys are reported as
    `not_through_us`.
    """
    now = datetime.now(UTC)
    with one_line_errors(), open_control(data, os.environ) as database:
        if key or model or remove:
            author = book_author(database, SecretFiles(data / "secrets"), os.environ, now)
            with database.session() as session:
                keys, models = _pairs(key or (), "--key"), _pairs(model or (), "--model")
                _set_names(session, author, provider, keys, models, remove or ())
        with database.session() as session:
            shown = [
                {"kind": row.kind, "name": row.name, "meaning": row.meaning or None}
                for row in bill_names(session, provider)
            ]
    print_json(shown) if as_json else _table(
        ("kind", "name", "meaning"), shown, "no names are mapped: all lines count as gateway traffic"
    )


@app.command("report")
def report_command(
    provider: Provider, month: OneMonth, data: Data = DEFAULT_DATA, store_url: StoreUrl = "", as_json: AsJson = False
) -> None:
    """Compare a provider's bill with recorded usage, and sum the differences by cause."""
    with one_line_errors():
        shown = reconciled_as_json(_reconciled(provider, month, data, store_url), limit=0)
    for left_out in ("differences", "has_more"):
        del shown[left_out]
    if as_json:
        print_json(shown)
        return
    typer.echo(f"billed     {shown['billed_usd']} USD ({shown['lines']:,} lines)")
    typer.echo(f"recorded   {shown['recorded_usd']} USD")
    typer.echo(f"difference {shown['difference_usd']} USD, of which unknown {shown['unknown_usd']} USD")
    _table(_SUMS, shown["causes"], "the bill matches recorded usage")


@app.command("show")
def show_command(
    provider: Provider,
    month: OneMonth,
    cause: Annotated[str, typer.Option("--cause", help=f"Only this cause (default: all). One of: {_CAUSES}.")] = "",
    day: Annotated[str, typer.Option("--day", help="Only this day (UTC), such as 2026-11-03 (default: all).")] = "",
    model: Annotated[str, typer.Option("--model", help="Only this model, as the report names it (default: all).")] = "",
    most: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number, largest first.")] = _MOST,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Show the differences between a bill and recorded usage, largest first."""
    with one_line_errors():
        if cause and cause not in CAUSE_WORDS:
            raise InvalidRequest(f"cause {cause[:40]!r} is not one of {', '.join(CAUSE_WORDS)}", param="cause")
        found = _reconciled(provider, month, data, store_url)
        shown = reconciled_as_json(found, day=day, model=model, cause=cause, limit=most)
    if as_json:
        print_json({"differences": shown["differences"], "has_more": shown["has_more"]})
    else:
        _table(_SHOWN, shown["differences"], "no difference")
        if shown["has_more"]:
            typer.echo("there are more; raise --limit to see them")


@app.command("stated")
def stated_command(
    month: Annotated[str, typer.Argument(help="The month in UTC, such as 2026-11.")],
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Compare recorded costs with the costs in providers' answers (OpenRouter and xAI return them)."""
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        found = stated_costs(opened.store, month_period(month, ZoneInfo("UTC")))
    shown = [
        {
            "provider": one.provider,
            "target": one.target,
            "model": one.model,
            "requests": one.requests,
            "without": one.unstated,
            "stated_usd": format(one.stated_usd, "f"),
            "recorded_usd": format(one.recorded_usd, "f"),
            "difference_usd": format(one.difference_usd, "f"),
        }
        for one in found
    ]
    print_json(shown) if as_json else _table(_STATED, shown, "no answer of this month had a cost from its provider")


def _reconciled(provider: str, month: str, data: Path, store_url: str) -> Reconciled:
    with open_installation(data, store_url, os.environ) as opened, opened.database.session() as session:
        found = reconcile(opened.store, session, provider, month, datetime.now(UTC))
        keep(session, found)
        return found


def _set_names(
    session: Session,
    author: Author,
    provider: str,
    keys: dict[str, str | None],
    models: dict[str, str | None],
    removed: Sequence[str],
) -> None:
    known = {(row.kind, row.name) for row in bill_names(session, provider)}
    for name in removed:
        found = [kind for kind, each in known if each == name]
        if not found:
            raise InvalidRequest(f"{name[:60]!r} is not set for {provider}", param="remove")
        for kind in found:
            (keys if kind == "key" else models)[name] = None
    if keys:
        set_bill_names(session, author, provider, "key", keys)
    if models:
        set_bill_names(session, author, provider, "model", models)


def _pairs(stated: Sequence[str], option: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for text in stated:
        name, mark, meaning = text.rpartition("=")
        if not mark or not name:
            raise InvalidRequest(f"{option} {text[:60]!r} is not a pair NAME=VALUE", param=option.lstrip("-"))
        found[name] = meaning
    return found


def _table(columns: Sequence[str], rows: Sequence[dict[str, Any]], empty: str) -> None:
    print_table(columns, rows, lambda row, name: "-" if row[name] in (None, "") else str(row[name]), empty)
