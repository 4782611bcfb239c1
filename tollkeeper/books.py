"""`tollkeeper books`: corrections of recorded cost, booked beside the requests and never into them."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from analytics.books.booking import (
    Preview,
    RerateWish,
    book_decision,
    book_rerate,
    book_reversal,
    preview_rerate,
)
from analytics.books.projection import copy_missing
from analytics.books.rendering import adjustment_as_json, preview_as_json
from analytics.books.rerating import RerateQuestion
from backends.control.books import entries_of, get_adjustment, list_adjustments
from contracts.control import BookAdjustment
from tollkeeper.book_author import book_author
from tollkeeper.cost_range import UTC_NAME, From, Month, Tenant, TimeZone, To, asked_range
from tollkeeper.open_installation import open_control, open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table

app = typer.Typer(
    help="Corrections of recorded cost: rerate usage, reverse a correction, list what was booked.", no_args_is_help=True
)

AdjustmentId = Annotated[
    str, typer.Argument(metavar="ID", help="The adjustment's id, adj_...; `adjustments` lists it.")
]
Reason = Annotated[str, typer.Option("--reason", help="Why, in up to 500 characters. Shown beside the correction.")]
_PREVIEW: Final = (
    *("period", "tenant", "model", "price", "requests", "recorded_usd", "booked_usd", "correction_usd", "net_usd"),
)
_LISTED: Final = ("id", "kind", "state", "amount_usd", "entries", "card", "reason", "author", "at")


@app.command("rerate")
def rerate_command(
    reason: Reason,
    card: Annotated[
        str, typer.Option(help="Version of the price card to price by. Left out: the card that holds for each request.")
    ] = "",
    begin: From = "",
    end: To = "",
    month: Month = "",
    tz: TimeZone = UTC_NAME,
    tenant: Tenant = "",
    model: Annotated[str, typer.Option(help="Of this model alone.")] = "",
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Book it without asking.")] = False,
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Only show what would be booked.")] = False,
    is_proposal: Annotated[
        bool, typer.Option("--propose", help="Write it as a proposal that another person approves.")
    ] = False,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Price recorded requests again and book the difference. Requests without a price are billed if a card has one now.

    Records stay as they are. Without --yes the correction is shown first. The same correction twice books nothing.
    """
    now = datetime.now(UTC)
    with one_line_errors():
        period, _ = asked_range(begin, end, month, tz, now)
        wish = RerateWish(RerateQuestion(period, now, tenant, model), card, reason, is_proposal)
        with open_installation(data, store_url, os.environ) as opened:
            author = book_author(opened.database, opened.secrets, os.environ, now)
            row: BookAdjustment | None = None
            if is_confirmed and not is_dry:
                row, preview = book_rerate(opened.store, opened.database, author, wish)
                if not as_json:
                    _print_preview(preview)
            else:
                preview = preview_rerate(opened.store, opened.database, wish)
                if not as_json:
                    _print_preview(preview)
                if preview.entries and not (is_dry or as_json) and sys.stdin.isatty() and typer.confirm("Book it?"):
                    shown = RerateWish(wish.question, card, reason, is_proposal, preview.digest)
                    row, preview = book_rerate(opened.store, opened.database, author, shown)
    if as_json:
        print_json({**preview_as_json(preview), "adjustment": None if row is None else adjustment_as_json(row)})
    elif row is not None:
        typer.echo(_booked(row))
    elif not preview.entries:
        typer.echo("nothing to correct: every request is booked at this price")
    else:
        typer.echo("not booked; --yes books it")


@app.command("reverse")
def reverse_command(
    adjustment: AdjustmentId,
    reason: Reason,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Undo a booked adjustment by a counter-entry for each of its entries."""
    now = datetime.now(UTC)
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        author = book_author(opened.database, opened.secrets, os.environ, now)
        row = book_reversal(opened.store, opened.database, author, adjustment, reason)
    _told(row, as_json)


@app.command("approve")
def approve_command(
    adjustment: AdjustmentId, data: Data = DEFAULT_DATA, store_url: StoreUrl = "", as_json: AsJson = False
) -> None:
    """Book a proposed adjustment that another person wrote."""
    _decide(adjustment, data, store_url, as_json, is_approved=True)


@app.command("reject")
def reject_command(
    adjustment: AdjustmentId, data: Data = DEFAULT_DATA, store_url: StoreUrl = "", as_json: AsJson = False
) -> None:
    """Reject a proposed adjustment; it is kept and never counts."""
    _decide(adjustment, data, store_url, as_json, is_approved=False)


@app.command("adjustments")
def adjustments_command(
    tenant: Tenant = "",
    last: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of adjustments, newest first.")] = 100,
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """List adjustments, the newest first."""
    with one_line_errors(), open_control(data, os.environ) as database, database.session() as session:
        rows = list_adjustments(session, tenant=tenant, limit=last, newest_first=True)
    if as_json:
        print_json([adjustment_as_json(row) for row in rows])
    else:
        print_table(_LISTED, [_listed(row) for row in rows], lambda row, name: str(row[name]), "no adjustments")


@app.command("show")
def show_command(adjustment: AdjustmentId, data: Data = DEFAULT_DATA, as_json: AsJson = False) -> None:
    """Show an adjustment with its entries."""
    with one_line_errors(), open_control(data, os.environ) as database, database.session() as session:
        row = get_adjustment(session, adjustment)
        entries = entries_of(session, adjustment)
    shown: Any = adjustment_as_json(row, entries)
    if as_json:
        print_json(shown)
        return
    typer.echo(f"{row.id}: {row.kind}, {row.state}, {row.amount_usd:f} USD in {row.entry_count} entries")
    typer.echo(f"reason: {row.reason}")
    typer.echo(f"by {row.author} at {row.created_at:%Y-%m-%d %H:%M:%S} UTC")
    if row.approved_by:
        typer.echo(f"{'approved' if row.state == 'booked' else 'rejected'} by {row.approved_by}")
    if row.reverses:
        typer.echo(f"reverses {row.reverses}")
    columns = ("period", "used_at", "tenant", "team", "key", "model", "price", "requests", "amount_usd")
    print_table(columns, shown["entries"], lambda line, name: str(line[name] or "-"), "no entries")


@app.command("copy")
def copy_command(data: Data = DEFAULT_DATA, store_url: StoreUrl = "", as_json: AsJson = False) -> None:
    """Copy booked entries that the store lacks into it. The analytics process does so every few seconds."""
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        with opened.database.session() as session:
            copied = copy_missing(session, opened.store)
    if as_json:
        print_json({"copied": copied})
    else:
        typer.echo(f"{copied} adjustments copied" if copied else "the store has every booked entry")


def _decide(adjustment: str, data: Path, store_url: str, as_json: bool, *, is_approved: bool) -> None:
    now = datetime.now(UTC)
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        author = book_author(opened.database, opened.secrets, os.environ, now)
        row = book_decision(opened.store, opened.database, author, adjustment, is_approved=is_approved)
    _told(row, as_json)


def _told(row: BookAdjustment, as_json: bool) -> None:
    if as_json:
        print_json(adjustment_as_json(row))
    else:
        typer.echo(_booked(row))


def _booked(row: BookAdjustment) -> str:
    if row.state == "proposed":
        return f"{row.id} proposed: {row.amount_usd:f} USD; another person runs `tollkeeper books approve {row.id}`"
    return f"{row.id} {row.state}: {row.amount_usd:f} USD in {row.entry_count} entries"


def _print_preview(preview: Preview) -> None:
    shown: Any = preview_as_json(preview)
    print_table(_PREVIEW, shown["lines"], lambda line, name: str(line[name] or "-"), "no difference")
    if preview.entries:
        typer.echo(f"correction: {shown['amount_usd']} USD in {shown['entries']} entries")
    if preview.outside_validity:
        typer.echo(
            f"{preview.outside_validity} of these requests ran outside of the dates of card {preview.card}; they are "
            "priced by it all the same"
        )


def _listed(row: BookAdjustment) -> dict[str, object]:
    return {
        "id": row.id,
        "kind": row.kind.replace("_", " "),
        "state": row.state,
        "amount_usd": format(row.amount_usd, "f"),
        "entries": row.entry_count,
        "card": row.card_version or "-",
        "reason": row.reason,
        "author": row.author,
        "at": f"{row.created_at:%Y-%m-%d %H:%M}",
    }
