"""`tollkeeper cost export`, `check` and `invoices`: costs as FOCUS files, and draft invoices."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final
from zoneinfo import ZoneInfo

import typer

from analytics.cost.periods import split
from analytics.cost.question import CostQuestion
from analytics.exports.billing import load_billing
from analytics.exports.charges import Charge
from analytics.exports.files import write_csv, write_parquet
from analytics.exports.focus import gpu_rows
from analytics.exports.focus_columns import Row
from analytics.exports.focus_file import file_faults
from analytics.exports.invoice import Invoice, Level, invoices, not_invoiced
from analytics.exports.usage_export import LEVELS, charges_in, month_around, usage_export
from analytics.gpu.books import gpu_books, unknown_hours_note
from analytics.gpu.cost import gpu_cost
from analytics.gpu.idle import idle_policy
from analytics.scope import Period
from backends.control.book_periods import list_profiles
from backends.control.prices import load_cards
from backends.control.rates import load_rates
from contracts.errors import InvalidRequest
from contracts.pricing.money import usd
from contracts.pricing.rates import RateBook
from tollkeeper.cost_range import UTC_NAME, From, Month, Team, Tenant, TimeZone, To, asked_range
from tollkeeper.open_installation import OpenInstallation, open_installation
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json

_FORMATS: Final = ("csv", "parquet")
Issuer = Annotated[str, typer.Option(help="Name of the organisation that issues the invoices.")]


def export_command(
    to: Annotated[Path, typer.Argument(help="File to write, ending in .csv or .parquet.")],
    begin: From = "",
    end: To = "",
    month: Month = "",
    tz: TimeZone = UTC_NAME,
    gpu: Annotated[
        bool, typer.Option("--gpu/--usage", help="Export GPU cost split over tenants instead of priced usage.")
    ] = False,
    idle: Annotated[
        str, typer.Option(help="With --gpu: who pays for idle GPU time; see `tollkeeper gpu cost --help`.")
    ] = "use",
    issuer: Issuer = "Tollkeeper",
    tenant: Tenant = "",
    team: Team = "",
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Write costs by day as a FOCUS 1.3 file and check it. Status 1 if a rule is violated."""
    now = datetime.now(UTC)
    with one_line_errors():
        form = to.suffix.removeprefix(".")
        if form not in _FORMATS:
            raise InvalidRequest(f"{to.name!r} ends in neither .csv nor .parquet", param="to")
        if gpu and (tenant or team):
            raise InvalidRequest("--gpu splits a GPU over all its tenants; leave --tenant and --team out", param="gpu")
        if not to.parent.is_dir():
            raise InvalidRequest(f"{to} cannot be written: there is no directory {to.parent}", param="to")
        period, zone = asked_range(begin, end, month, tz, now)
        question = CostQuestion(
            *(period.start, period.end, LEVELS, "day", zone),
            tenant=tenant or None,
            team=team or None,
            asked_at=now,
        )
        with open_installation(data, store_url, os.environ) as opened:
            if gpu:
                rows = [row for part in _months(period, zone) for row in _gpu_rows(opened, part, zone, idle, issuer)]
            else:
                with opened.database.session() as session:
                    billing = load_billing(session, now, tenant=tenant, has_extras=not team)
                rows = usage_export(_charges(opened, question)[0], period, zone, issuer, billing)
        with _writing(to):
            (write_csv if form == "csv" else write_parquet)(rows, to)
        _, faults = file_faults(to)
    if as_json:
        print_json({"file": str(to), "rows": len(rows), "faults": faults})
    else:
        typer.echo(f"{len(rows)} rows in {to}")
        for fault in faults:
            typer.echo(fault, err=True)
    raise typer.Exit(1 if faults else 0)


def check_command(
    file: Annotated[Path, typer.Argument(help="FOCUS file, ending in .csv or .parquet.")],
    as_json: AsJson = False,
) -> None:
    """Check a FOCUS file against the specification's rules. Status 1 if one is violated."""
    with one_line_errors():
        rows, faults = file_faults(file)
    if as_json:
        print_json({"file": str(file), "rows": rows, "faults": faults})
    else:
        typer.echo(
            f"{rows} rows in {file}: {'no rule of FOCUS 1.3 is violated' if not faults else f'{len(faults)} faults'}"
        )
        for fault in faults:
            typer.echo(fault, err=True)
    raise typer.Exit(1 if faults else 0)


def invoices_command(
    to: Annotated[Path, typer.Argument(help="Directory to write the invoices to.")],
    month: Month = "",
    begin: From = "",
    end: To = "",
    tz: TimeZone = UTC_NAME,
    level: Annotated[str, typer.Option(help="One invoice per team, or per tenant.")] = "team",
    currency: Annotated[
        str,
        typer.Option(
            help="Currency code (ISO 4217) of all drafts; its rate is set with `tollkeeper rates`. Default: each "
            "tenant's own, as `tollkeeper books profile` says."
        ),
    ] = "",
    form: Annotated[str, typer.Option("--format", help="Format: html, pdf or both.")] = "both",
    issuer: Issuer = "Tollkeeper",
    tenant: Tenant = "",
    team: Team = "",
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Write a draft invoice for each team (or tenant) that used anything, as HTML and PDF. `books close` issues them.

    Shadow traffic of rollouts belongs to no tenant: it is on no invoice, and is printed separately.
    """
    now = datetime.now(UTC)
    with one_line_errors():
        if form not in ("html", "pdf", "both"):
            raise InvalidRequest(f"{form!r} is not a format; choose html, pdf or both", param="format")
        asked = _level(level)
        if team and asked == "tenant":
            raise InvalidRequest("a tenant's invoice is of all its teams; leave --team out", param="team")
        period, zone = asked_range(begin, end, month, tz, now)
        with _writing(to):
            to.mkdir(parents=True, exist_ok=True)
        question = CostQuestion(
            *(period.start, period.end, ("tenant", "team", "project"), None, zone),
            tenant=tenant or None,
            team=team or None,
            asked_at=now,
        )
        with open_installation(data, store_url, os.environ) as opened:
            charges, rates = _charges(opened, question)
            with opened.database.session() as session:
                own = {row.tenant_id: row.currency for row in list_profiles(session) if row.tenant_id}
        own_pico_usd, own_unpriced = not_invoiced(charges)
        chosen = currency.upper() or own
        made = invoices(charges, period, asked, rates, chosen, zone=zone, tenant=tenant or None, as_of=now)
        with _writing(to):
            for invoice in made:
                _write(invoice, to / _file_name(invoice), form, issuer, zone)
    shown = [
        {"number": one.number, "currency": one.currency, "payable": str(one.payable), "file": _file_name(one)}
        for one in made
    ]
    if as_json:
        not_charged = {"usd": format(usd(own_pico_usd), "f"), "unpriced_tokens": own_unpriced}
        print_json({"directory": str(to), "invoices": shown, "platforms_own": not_charged})
    else:
        typer.echo(f"{len(made)} draft invoices in {to}; `tollkeeper books close` issues them")
        if own_pico_usd or own_unpriced:
            also = f", and {own_unpriced} tokens without a price" if own_unpriced else ""
            typer.echo(
                f"{usd(own_pico_usd):f} USD{also} of shadow traffic, which belongs to no tenant, are on no invoice"
            )


@contextmanager
def _writing(to: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidRequest(f"{to} cannot be written: {error.strerror}", param="to") from error


def _write(invoice: Invoice, to: Path, form: str, issuer: str, zone: ZoneInfo) -> None:
    """Write an invoice as HTML, PDF or both; `to` is the path without a suffix."""
    from analytics.exports.invoice_pages import invoice_html, invoice_pdf  # imported here: it loads slowly

    if form != "pdf":
        to.with_name(f"{to.name}.html").write_text(invoice_html(invoice, issuer, zone), encoding="utf-8")
    if form != "html":
        to.with_name(f"{to.name}.pdf").write_bytes(invoice_pdf(invoice, issuer, zone))


def _charges(opened: OpenInstallation, question: CostQuestion) -> tuple[list[Charge], RateBook]:
    with opened.database.session() as session:
        cards, rates = load_cards(session), load_rates(session)
    return charges_in(opened.store, question, cards), rates


def _months(period: Period, zone: ZoneInfo) -> tuple[Period, ...]:
    return split(period, "month", zone)


def _gpu_rows(opened: OpenInstallation, period: Period, zone: ZoneInfo, idle: str, issuer: str) -> list[Row]:
    policy = idle_policy(idle)
    if policy == "reservation":
        raise InvalidRequest("an export has no reservations; choose platform, use or peak", param="idle")
    with opened.database.session() as session:
        rates = load_rates(session)
    books = gpu_books(opened.store, period)
    ledger = books.ledger
    if ledger.unknown_hours:
        typer.echo(unknown_hours_note(ledger.unknown_hours), err=True)
    rows: list[Row] = []
    for device in sorted({minute.machine for minute in ledger.minutes}):
        own = tuple(minute for minute in ledger.minutes if minute.machine == device)
        of_one = replace(ledger, minutes=own)
        engines = {minute.engine for minute in own}
        use = {name: by_minute for name, by_minute in books.use.items() if name[0] in engines}
        cost = gpu_cost(of_one, use, rates, books.models, policy)
        rows += gpu_rows(device, books.models.get(device, ""), cost, month_around(period, zone), issuer)
    return rows


def _level(text: str) -> Level:
    if text == "team":
        return "team"
    if text == "tenant":
        return "tenant"
    raise InvalidRequest(f"{text!r} is not a level of invoices; choose team or tenant", param="level")


def _file_name(invoice: Invoice) -> str:
    kept = (letter if letter.isalnum() or letter in "-_" else "-" for letter in invoice.number.replace("/", "_"))
    return "".join(kept)
