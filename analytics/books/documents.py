"""Issues invoices, credit notes and cancellations: parties, dates, taxes, and the stored pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final
from zoneinfo import ZoneInfo

from sqlalchemy import select
from sqlalchemy.orm import Session

from analytics.books.calendars import month_period
from analytics.exports.invoice import CENT, MICRO, Invoice, Issue, Party
from backends.control.book_periods import (
    ISSUER,
    NewDocument,
    get_document,
    next_number,
    profile_of,
    write_document,
)
from backends.control.changes import Author
from backends.control.organisation import get_tenant
from contracts.control import BookAdjustment, BookDocument, BookProfile
from contracts.errors import Conflict
from contracts.pricing.book_entries import DocumentKind
from contracts.pricing.money import pico_usd, usd

TITLES: Final[Mapping[DocumentKind, str]] = {
    "invoice": "Invoice",
    "credit_note": "Credit note",
    "cancellation": "Cancellation",
}
_OUR_NAME: Final = "Tollkeeper"  # name of an issuer without a legal name

Taxes = tuple[tuple[str, Decimal, Decimal], ...]


@dataclass(frozen=True, slots=True)
class IssuedPages:
    """A document's rendered pages (HTML and PDF), with its number."""

    html: str
    pdf: bytes


def issue_invoice(
    session: Session,
    author: Author,
    invoice: Invoice,
    zone: ZoneInfo,
    month: str,
    version: int,
    net_by_month: Mapping[str, int],
) -> BookDocument:
    """Issue an invoice in the current transaction. `net_by_month`: its amounts by month of usage, in pico-USD."""
    profile = profile_of(session, invoice.tenant)
    percents = [(name, Decimal(percent)) for name, percent in profile_of(session, ISSUER).taxes.items()]
    own = [(name, Decimal(percent)) for name, percent in profile.taxes.items()]
    taxes = _taxes(invoice.payable, own or percents)
    due = author.at + timedelta(days=profile.due_days)
    return _issue(
        session,
        author,
        "invoice",
        invoice,
        zone,
        taxes,
        _About(month, version),
        due=due,
        net_by_month=net_by_month,
    )


def issue_cancellation(
    session: Session, author: Author, issued: BookDocument, zone: ZoneInfo, reason: str
) -> BookDocument:
    """Issue the cancellation of an invoice in the current transaction: the same amounts, negated."""
    taxes = tuple((name, Decimal(percent), -Decimal(amount)) for name, percent, amount in issued.taxes)
    return _issue(
        session,
        author,
        "cancellation",
        _note(issued, zone, f"invoice {issued.number} is cancelled", -issued.subtotal, -pico_usd(issued.net_usd)),
        zone,
        taxes,
        _About(issued.month, issued.version, issued.number, reason=reason),
        due=None,
        net_by_month={month: -pico_usd(Decimal(amount)) for month, amount in issued.net_by_month.items()},
    )


def issue_credit_note(
    session: Session, author: Author, row: BookAdjustment, month: str, zone: ZoneInfo
) -> BookDocument:
    """Issue the credit note of a credit in the current transaction: in the invoice's currency, at its rate and with its
    taxes."""
    issued = creditable(session, row.invoice, -row.amount_usd, but=row.id)
    amount = pico_usd(row.amount_usd)
    part = (row.amount_usd * issued.usd_rate).quantize(MICRO, ROUND_HALF_EVEN)
    note = _note(issued, zone, f"credit on invoice {issued.number}: {row.reason}", part, amount)
    percents = [(name, Decimal(percent)) for name, percent, _ in issued.taxes]
    return _issue(
        session,
        author,
        "credit_note",
        note,
        zone,
        _taxes(note.payable, percents),
        _About(month, corrects=issued.number, adjustment=row.id, reason=row.reason),
        due=None,
        net_by_month={month: amount},
    )


def creditable(session: Session, number: str, credit_usd: Decimal, *, but: str = "") -> BookDocument:
    """Return the invoice on which an amount may be credited. Raises NotFound, and Conflict if it is not an invoice, was
    cancelled, or has too little left; `but`: id of a credit to exclude from earlier credits."""
    issued = get_document(session, number)
    if issued.kind != "invoice":
        raise Conflict(f"{number} is a {issued.kind.replace('_', ' ')}, not an invoice", param="invoice")
    cancelled = select(BookDocument.number).where(BookDocument.corrects == number, BookDocument.kind == "cancellation")
    by = session.scalars(cancelled).first()
    if by is not None:
        raise Conflict(f"invoice {number} is cancelled by {by}; nothing is left to credit", param="invoice")
    # Credits on an earlier version count: its cancellation returned the full amount, and they remain valid.
    versions = select(BookDocument.number).where(
        BookDocument.tenant_id == issued.tenant_id, BookDocument.month == issued.month, BookDocument.kind == "invoice"
    )
    before = session.scalars(
        select(BookAdjustment.amount_usd).where(
            BookAdjustment.invoice.in_(versions), BookAdjustment.state != "rejected", BookAdjustment.id != but
        )
    )
    left = issued.net_usd + sum(before, Decimal(0))  # credits are below 0
    if credit_usd > left:
        raise Conflict(
            f"the credit is {credit_usd:f} USD, and of invoice {number} {left:f} USD are left; credit at most that",
            param="usd",
        )
    return issued


def party_of(session: Session, tenant: str) -> Party:
    """Return the party (a tenant, or the issuer) for documents."""
    profile = profile_of(session, tenant)
    name = profile.legal_name or (get_tenant(session, tenant).name if tenant else _OUR_NAME)
    return Party(name, _lines(profile), profile.tax_id)


def _lines(profile: BookProfile) -> tuple[str, ...]:
    return tuple(line.strip() for line in profile.address.splitlines() if line.strip())


def _taxes(payable: Decimal, percents: Sequence[tuple[str, Decimal]]) -> Taxes:
    return tuple(
        (name, percent, (payable * percent / 100).quantize(CENT, ROUND_HALF_EVEN)) for name, percent in percents
    )


def _note(issued: BookDocument, zone: ZoneInfo, name: str, part: Decimal, net_pico_usd: int) -> Invoice:
    """Return the contents of a document with one amount and no lines."""
    return Invoice(
        number="",
        tenant=issued.tenant_id,
        team="",
        level="tenant",
        period=month_period(issued.month, zone),
        currency=issued.currency,
        usd_rate=issued.usd_rate,
        rate_version=f"the rate of {issued.number}",
        terms_version="",
        lines=(),
        usage=Decimal(0),
        adjustments=(),
        unpriced_quantity=0,
        corrections=((name, part),),
        net_pico_usd=net_pico_usd,
    )


@dataclass(frozen=True, slots=True)
class _About:
    """A document's subject: month and version; for notes, also the corrected invoice and the reason."""

    month: str
    version: int = 1
    corrects: str = ""
    adjustment: str = ""
    reason: str = ""


def _issue(
    session: Session,
    author: Author,
    kind: DocumentKind,
    invoice: Invoice,
    zone: ZoneInfo,
    taxes: Taxes,
    about: _About,
    *,
    due: datetime | None,
    net_by_month: Mapping[str, int],
) -> BookDocument:
    issued_on = author.at.astimezone(zone).date()
    issue = Issue(
        number=next_number(session, kind, issued_on),
        title=TITLES[kind],
        issued_on=issued_on,
        due_on=None if due is None else due.astimezone(zone).date(),
        seller=party_of(session, ISSUER),
        buyer=party_of(session, invoice.tenant),
        purchase_order=profile_of(session, invoice.tenant).purchase_order,
        taxes=taxes,
        version=about.version,
        corrects=about.corrects,
        reason=about.reason,
    )
    pages = _pages(invoice, zone, issue)
    new = NewDocument(
        number=issue.number,
        kind=kind,
        tenant=invoice.tenant,
        month=about.month,
        version=about.version,
        issued_at=author.at,
        due_at=due,
        currency=invoice.currency,
        usd_rate=invoice.usd_rate,
        net_usd=usd(invoice.net_pico_usd),
        net_by_month={name: format(usd(amount), "f") for name, amount in net_by_month.items()},
        subtotal=invoice.subtotal,
        tax=issue.tax,
        taxes=taxes,
        payable=invoice.payable + issue.tax,
        html=pages.html,
        pdf=pages.pdf,
        corrects=about.corrects,
        adjustment=about.adjustment,
        reason=about.reason,
        terms=invoice.adjustments,
    )
    return write_document(session, author, new)


def _pages(invoice: Invoice, zone: ZoneInfo, issue: Issue) -> IssuedPages:
    from analytics.exports.invoice_pages import invoice_html, invoice_pdf  # imported here: only needed to issue

    return IssuedPages(
        invoice_html(invoice, issue.seller.name, zone, issue), invoice_pdf(invoice, issue.seller.name, zone, issue)
    )
