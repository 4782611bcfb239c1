"""`tollkeeper books`: corrections of recorded cost (as separate ledger entries), closed months, and documents."""

import os
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Final, cast
from zoneinfo import ZoneInfo

import typer

from analytics.books.booking import (
    Preview,
    RerateWish,
    book_rerate,
    book_reversal,
    preview_rerate,
)
from analytics.books.calendars import month_period
from analytics.books.closing import (
    book_decision,
    close_month,
    credit_invoice,
    reopen_month,
    review_month,
    usage_of_unknown_tenants,
)
from analytics.books.documents import TITLES
from analytics.books.projection import copy_missing
from analytics.books.rendering import (
    adjustment_as_json,
    document_as_json,
    period_as_json,
    preview_as_json,
)
from analytics.books.rerating import RerateQuestion
from backends.control.book_periods import (
    ProfileChange,
    get_document,
    list_documents,
    list_periods,
    pdf_of,
    profile_of,
    set_profile,
)
from backends.control.books import entries_of, get_adjustment, list_adjustments
from backends.secrets.secret_files import SecretFiles
from contracts.access.person import person_of
from contracts.control import BookAdjustment, BookDocument
from contracts.errors import InvalidRequest
from contracts.pricing.book_entries import DocumentKind
from contracts.pricing.money import usd
from tollkeeper.book_author import book_author
from tollkeeper.cost_range import Month, Tenant
from tollkeeper.open_installation import open_control, open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import in_words, one_line_errors, print_json, print_table

app = typer.Typer(
    help="Corrections of recorded cost, closed months, issued invoices and credit notes.", no_args_is_help=True
)

AdjustmentId = Annotated[
    str, typer.Argument(metavar="ID", help="The adjustment's id, adj_...; `adjustments` lists it.")
]
Reason = Annotated[str, typer.Option("--reason", help="Reason, up to 500 characters; shown with the correction.")]
OneMonth = Annotated[str, typer.Argument(help="The month, such as 2026-11.")]
OneTenant = Annotated[str, typer.Option("--tenant", help="The tenant whose month it is.")]
_PREVIEW: Final = (
    *("period", "tenant", "model", "price", "requests", "recorded_usd", "booked_usd", "correction_usd", "net_usd"),
)
_LISTED: Final = ("id", "kind", "state", "amount_usd", "entries", "card", "reason", "author", "at")


@app.command("rerate")
def rerate_command(
    reason: Reason,
    card: Annotated[
        str, typer.Option(help="Version of the price card to use (default: the card valid for each request).")
    ] = "",
    begin: Annotated[str, typer.Option("--from", help="First date, such as 2026-11-01 (default: this month's).")] = "",
    end: Annotated[str, typer.Option("--to", help="End date, exclusive (default: tomorrow).")] = "",
    month: Month = "",
    tenant: Tenant = "",
    model: Annotated[str, typer.Option(help="Only this model (default: all).")] = "",
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Book it without asking.")] = False,
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Only show what would be booked.")] = False,
    is_proposal: Annotated[
        bool, typer.Option("--propose", help="Write a proposal; another person must approve it.")
    ] = False,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Price recorded requests again and book the difference. Requests without a price are billed if a card has one now.

    Dates are in each tenant's time zone. Records are not changed. Without --yes, shows the correction and asks.
    Repeating a correction books nothing.
    """
    now = datetime.now(UTC)
    with one_line_errors():
        first, after = _dates(begin, end, month, now)
        wish = RerateWish(RerateQuestion(first, after, now, tenant, model), card, reason, is_proposal)
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
        typer.echo("nothing to correct: every request has this price already")
    else:
        typer.echo("not booked; add --yes to book it")


@app.command("reverse")
def reverse_command(
    adjustment: AdjustmentId,
    reason: Reason,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Undo a booked adjustment with a counter-entry for each of its entries."""
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
    """Reject a proposed adjustment. It stays listed and never counts."""
    _decide(adjustment, data, store_url, as_json, is_approved=False)


@app.command("adjustments")
def adjustments_command(
    tenant: Tenant = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of adjustments, newest first.")] = 100,
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """List adjustments, newest first."""
    with one_line_errors(), open_control(data, os.environ) as database, database.session() as session:
        rows = list_adjustments(session, tenant=tenant, limit=limit, newest_first=True)
    if as_json:
        print_json([adjustment_as_json(row) for row in rows])
    else:
        print_table(_LISTED, [_listed(row) for row in rows], lambda row, name: str(row[name]), "no adjustments")


@app.command("profile")
def profile_command(
    tenant: Annotated[str, typer.Argument(help="The tenant (default: the issuer, who runs this installation).")] = "",
    legal_name: Annotated[str | None, typer.Option(help="Legal name on documents.")] = None,
    address: Annotated[str | None, typer.Option(help="Address on documents; \\n begins a new line.")] = None,
    tax_id: Annotated[str | None, typer.Option(help="Tax number, such as a VAT id.")] = None,
    purchase_order: Annotated[str | None, typer.Option(help="Purchase order number of the tenant.")] = None,
    currency: Annotated[str | None, typer.Option(help="ISO 4217 code that the tenant is invoiced in.")] = None,
    due_days: Annotated[int | None, typer.Option(help="Days until an invoice is due (default 30).")] = None,
    tax: Annotated[
        list[str] | None,
        typer.Option(help="Tax as NAME=PERCENT, such as VAT=19; repeat for more. Replaces the issuer's taxes."),
    ] = None,
    no_tax: Annotated[bool, typer.Option("--no-tax", help="Remove all taxes of this profile.")] = False,
    two_person: Annotated[
        bool | None,
        typer.Option(
            "--two-person/--one-person",
            help="Whether changes need a second person; switching this off needs two people.",
        ),
    ] = None,
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Set a tenant's or the issuer's details on documents; without options, show them."""
    now = datetime.now(UTC)
    change = ProfileChange(
        legal_name,
        None if address is None else address.replace("\\n", "\n"),
        tax_id,
        purchase_order,
        None if currency is None else currency.upper(),
        due_days,
        {} if no_tax else dict(_tax(text) for text in tax) if tax else None,
        two_person,
    )
    with one_line_errors(), open_control(data, os.environ) as database:
        if change == ProfileChange():
            with database.session() as session:
                row = profile_of(session, tenant)
        else:
            author = book_author(database, SecretFiles(data / "secrets"), os.environ, now)
            with database.session() as session:
                row = set_profile(session, author, tenant, change)
    shown = {
        "tenant": row.tenant_id or None,
        "legal_name": row.legal_name,
        "address": row.address,
        "tax_id": row.tax_id,
        "purchase_order": row.purchase_order,
        "currency": row.currency,
        "due_days": row.due_days,
        "taxes": dict(row.taxes),
        "two_person": row.is_two_person,
        "one_person_asked_by": row.one_person_asked_by,
    }
    if as_json:
        print_json(shown)
    else:
        _print_profile(shown)


def _print_profile(shown: Mapping[str, Any]) -> None:
    taxes = ", ".join(f"{name} {percent} %" for name, percent in shown["taxes"].items())
    lines = {
        "profile of": f"tenant {shown['tenant']}" if shown["tenant"] else "the issuer, who runs this installation",
        "legal name": shown["legal_name"],
        "address": str(shown["address"] or "").replace("\n", ", "),
        "tax id": shown["tax_id"],
        "purchase order": shown["purchase_order"],
        "currency": shown["currency"],
        "due after": f"{shown['due_days']} days",
        "taxes": taxes,
        "changes need two people": "yes" if shown["two_person"] else "no",
    }
    if shown["one_person_asked_by"]:
        lines["one-person mode requested by"] = f"{shown['one_person_asked_by']}; a second person must confirm"
    for name, value in lines.items():
        typer.echo(f"{name}: {value or '-'}")


@app.command("periods")
def periods_command(tenant: Tenant = "", data: Data = DEFAULT_DATA, as_json: AsJson = False) -> None:
    """List months in review or closed, latest first. A month that is not listed is a draft."""
    with one_line_errors(), open_control(data, os.environ) as database, database.session() as session:
        shown = [period_as_json(row) for row in list_periods(session, tenant=tenant)]
    if as_json:
        print_json(shown)
    else:
        columns = ("month", "tenant", "state", "version", "invoice", "changed_by", "changed_at")
        print_table(columns, shown, lambda row, name: str(row[name] or "-")[:40], "every month is a draft")


@app.command("review")
def review_command(
    month: OneMonth,
    tenant: OneTenant,
    reason: Annotated[str, typer.Option("--reason", help="A note, up to 500 characters.")] = "",
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Mark a tenant's month as in review. If changes need two people, another person must close it."""
    now = datetime.now(UTC)
    with one_line_errors(), open_control(data, os.environ) as database:
        author = book_author(database, SecretFiles(data / "secrets"), os.environ, now)
        row = review_month(database, author, month, tenant, reason)
    print_json(period_as_json(row)) if as_json else typer.echo(f"{month} of {tenant} is in review")


@app.command("close")
def close_command(
    month: OneMonth,
    tenant: Tenant = "",
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Close a month of one tenant, or of all that have not closed it, and issue the invoices.

    Records that arrive later are billed by the next month's invoice, on a line of their own. Exits with 1 if a tenant's
    month stays open.
    """
    now = datetime.now(UTC)
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        author = book_author(opened.database, opened.secrets, os.environ, now)
        done = close_month(opened.store, opened.database, author, month, tenant=tenant)
        strangers = {} if tenant else usage_of_unknown_tenants(opened.store, opened.database, month, now)
    for name, amount in strangers.items():
        typer.echo(
            f"not billed: {usd(amount):f} USD of {name}, which is not a tenant here; create it "
            f"(`tollkeeper tenants create {name}`) and close the month again",
            err=True,
        )
    if as_json:
        print_json(
            [
                {
                    "tenant": one.tenant,
                    "month": month,
                    "document": one.document and document_as_json(one.document),
                    "refused": one.refused or None,
                }
                for one in done
            ]
        )
    elif not done:
        typer.echo(f"{month} is closed for all tenants already")
    else:
        for one in done:
            said = "nothing to bill" if one.document is None else _issued(one.document)
            typer.echo(f"{month} of {one.tenant}: " + (f"stays open: {one.refused}" if one.refused else said))
    if any(one.refused for one in done):
        raise typer.Exit(1)


@app.command("reopen")
def reopen_command(
    month: OneMonth, tenant: OneTenant, reason: Reason, data: Data = DEFAULT_DATA, as_json: AsJson = False
) -> None:
    """Reopen a tenant's closed month. A cancellation document cancels its invoice, which stays listed."""
    now = datetime.now(UTC)
    with one_line_errors(), open_control(data, os.environ) as database:
        author = book_author(database, SecretFiles(data / "secrets"), os.environ, now)
        row, document = reopen_month(database, author, month, tenant, reason)
    if as_json:
        print_json({**period_as_json(row), "document": document and document_as_json(document)})
    elif row.wish:
        typer.echo(f"reopening {month} of {tenant} is requested; another person must run the same command to confirm")
    else:
        typer.echo(f"{month} of {tenant} is open" + (f"; {_issued(document)}" if document else ""))


@app.command("credit")
def credit_command(
    invoice: Annotated[str, typer.Argument(help="Number of the invoice, such as INV-2026-00001.")],
    usd: Annotated[str, typer.Option("--usd", help="Amount to credit in USD, before tax, such as 12.50.")],
    reason: Reason,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Credit an amount on an issued invoice: book an entry in the open month and issue a credit note."""
    now = datetime.now(UTC)
    with one_line_errors(), open_installation(data, store_url, os.environ) as opened:
        author = book_author(opened.database, opened.secrets, os.environ, now)
        row, document = credit_invoice(opened.store, opened.database, author, invoice, _decimal(usd), reason)
    _told(row, as_json, document)


@app.command("list")
def list_command(
    tenant: Tenant = "",
    month: Annotated[str, typer.Option("--month", help="Only this month, such as 2026-11 (default: all).")] = "",
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """List issued invoices, credit notes and cancellations in the order of issue."""
    with one_line_errors(), open_control(data, os.environ) as database, database.session() as session:
        shown = [document_as_json(row) for row in list_documents(session, tenant=tenant, month=month)]
    if as_json:
        print_json(shown)
    else:
        columns = ("number", "kind", "tenant", "month", "version", "net_usd", "payable", "currency", "corrects")
        print_table(columns, shown, lambda row, name: str(row[name] or "-"), "nothing was issued")


@app.command("show")
def show_command(
    adjustment: Annotated[
        str, typer.Argument(metavar="ID", help="Id of an adjustment (adj_...), or number of an issued document.")
    ],
    html: Annotated[Path | None, typer.Option(help="File to write the document's HTML into, as issued.")] = None,
    pdf: Annotated[Path | None, typer.Option(help="File to write the document's PDF into, as issued.")] = None,
    data: Data = DEFAULT_DATA,
    as_json: AsJson = False,
) -> None:
    """Show an adjustment with its entries, or an issued invoice, credit note or cancellation."""
    if not adjustment.startswith("adj_"):
        _show_document(adjustment, html, pdf, data, as_json)
        return
    with one_line_errors(), open_control(data, os.environ) as database, database.session() as session:
        row = get_adjustment(session, adjustment)
        entries = entries_of(session, adjustment)
    shown: Any = adjustment_as_json(row, entries)
    if as_json:
        print_json(shown)
        return
    typer.echo(f"{row.id}: {row.kind}, {row.state}, {row.amount_usd:f} USD in {_entries(row.entry_count)}")
    typer.echo(f"reason: {row.reason}")
    typer.echo(f"by {person_of(row.author)} at {row.created_at:%Y-%m-%d %H:%M:%S} UTC")
    if row.approved_by:
        typer.echo(f"{'approved' if row.state == 'booked' else 'rejected'} by {person_of(row.approved_by)}")
    if row.reverses:
        typer.echo(f"reverses {row.reverses}")
    columns = ("period", "used_at", "tenant", "team", "key", "model", "price", "requests", "amount_usd")
    print_table(columns, shown["entries"], lambda line, name: str(line[name] or "-"), "no entries")


@app.command("copy")
def copy_command(data: Data = DEFAULT_DATA, store_url: StoreUrl = "", as_json: AsJson = False) -> None:
    """Copy booked entries to the store if they are missing there.

    The analytics process does this every five minutes.
    """
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
        row, document = book_decision(opened.store, opened.database, author, adjustment, is_approved=is_approved)
    _told(row, as_json, document)


def _told(row: BookAdjustment, as_json: bool, document: BookDocument | None = None) -> None:
    if as_json:
        shown = None if document is None else document_as_json(document)
        print_json({**adjustment_as_json(row), "document": shown})
        return
    typer.echo(_booked(row))
    if document is not None:
        typer.echo(_issued(document))


def _show_document(number: str, html: Path | None, pdf: Path | None, data: Path, as_json: bool) -> None:
    with one_line_errors():
        with open_control(data, os.environ) as database, database.session() as session:
            row = get_document(session, number)
        shown: Any = document_as_json(row)
        try:
            if html is not None:
                html.write_bytes(row.html.encode())
            if pdf is not None:
                pdf.write_bytes(pdf_of(row))
        except OSError as error:
            raise InvalidRequest(f"the document cannot be written: {error.strerror}", param="to") from error
    if as_json:
        print_json(shown)
        return
    typer.echo(_issued(row))
    for name, value in shown.items():
        if value not in (None, [], {}):
            typer.echo(f"  {_DOCUMENT_WORDS.get(name) or name.replace('_', ' ')}: {in_words(value)}")


_DOCUMENT_WORDS: Final = {
    "author": "issued by",
    "usd_rate": "units of the currency per USD",
    "digest": "SHA-256",
    "is_as_issued": "unchanged since issued",
}


def _issued(document: BookDocument) -> str:
    name = TITLES[cast(DocumentKind, document.kind)].lower()
    return f"{name} {document.number}: {document.payable:f} {document.currency} payable"


def _dates(begin: str, end: str, month: str, now: datetime) -> tuple[date, date]:
    if month and (begin or end):
        raise InvalidRequest("--month contradicts --from and --to; give one of them", param="month")
    if month:
        period = month_period(month, ZoneInfo("UTC"))
        return period.start.date(), period.end.date()
    first = _date(begin, "from") if begin else now.date().replace(day=1)
    # Two days: in some time zones it is tomorrow already.
    return first, _date(end, "to") if end else now.date() + timedelta(days=2)


def _date(text: str, name: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequest(
            f"--{name} is {text[:30]!r}, which is not a date; give one such as 2026-11-01", param=name
        ) from error


def _tax(text: str) -> tuple[str, str]:
    name, sign, percent = text.partition("=")
    if not sign or not name.strip():
        raise typer.BadParameter(f"{text!r} is not a tax; write NAME=PERCENT, such as VAT=19")
    return name.strip(), percent.strip()


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise InvalidRequest(f"--usd is {text[:20]!r}, which is not an amount; write 12.50", param="usd") from error


def _booked(row: BookAdjustment) -> str:
    if row.state == "proposed":
        return f"{row.id} proposed: {row.amount_usd:f} USD; another person runs `tollkeeper books approve {row.id}`"
    return f"{row.id} {row.state}: {row.amount_usd:f} USD in {_entries(row.entry_count)}"


def _entries(count: int) -> str:
    return f"{count} entry" if count == 1 else f"{count} entries"


def _print_preview(preview: Preview) -> None:
    shown: Any = preview_as_json(preview)
    print_table(_PREVIEW, shown["lines"], lambda line, name: str(line[name] or "-"), "no difference")
    if preview.entries:
        typer.echo(f"correction: {shown['amount_usd']} USD in {_entries(shown['entries'])}")
    if preview.outside_validity:
        typer.echo(
            f"{preview.outside_validity} of these requests ran outside the validity of card {preview.card} and "
            "are priced with it anyway"
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
        "author": person_of(row.author),
        "at": f"{row.created_at:%Y-%m-%d %H:%M}",
    }
