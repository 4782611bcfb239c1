"""Accounting months, tenants' details on invoices, and the register of issued documents."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from backends.control.changes import Author, begin_change
from backends.control.organisation import get_tenant
from backends.control.people import is_same_person
from backends.control.row_names import row_name
from contracts.access.person import person_of
from contracts.control import BookDocument, BookPeriod, BookProfile
from contracts.errors import Conflict, InvalidRequest, NotFound
from contracts.pricing.book_entries import DocumentKind

ISSUER: Final = ""  # in place of a tenant's id: the issuer of invoices
_PREFIXES: Final[Mapping[DocumentKind, str]] = {"invoice": "INV", "credit_note": "CN", "cancellation": "CAN"}
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_MAX_DUE_DAYS: Final = 365
_PLAIN_FIELDS: Final = ("legal_name", "address", "tax_id", "purchase_order", "currency", "due_days")
_AUDITED: Final = (*_PLAIN_FIELDS, "taxes", "is_two_person", "one_person_asked_by")


@dataclass(frozen=True, slots=True)
class ProfileChange:
    """New values of a profile; `None` leaves one as it is."""

    legal_name: str | None = None
    address: str | None = None
    tax_id: str | None = None
    purchase_order: str | None = None
    currency: str | None = None
    due_days: int | None = None
    taxes: Mapping[str, str] | None = None
    is_two_person: bool | None = None


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to be issued. `number` is the `next_number` of its kind, which its pages show."""

    number: str
    kind: DocumentKind
    tenant: str
    month: str
    version: int
    issued_at: datetime
    due_at: datetime | None
    currency: str
    usd_rate: Decimal
    net_usd: Decimal
    net_by_month: Mapping[str, str]
    subtotal: Decimal
    tax: Decimal
    taxes: Sequence[tuple[str, Decimal, Decimal]]  # names with percent and amount
    payable: Decimal
    html: str
    pdf: bytes
    corrects: str = ""
    adjustment: str = ""
    reason: str = ""
    terms: Sequence[tuple[str, Decimal]] = ()  # discount, free amount, commitment: names with amount


def profile_of(session: Session, tenant: str) -> BookProfile:
    """Return the details on invoices of a tenant, or of the issuer; defaults if none are set."""
    found = session.get(BookProfile, tenant)
    return found or BookProfile(
        tenant_id=tenant,
        legal_name="",
        address="",
        tax_id="",
        purchase_order="",
        currency="USD",
        due_days=30,
        taxes={},
        is_two_person=False,
        one_person_asked_by="",
    )


def list_profiles(session: Session) -> list[BookProfile]:
    """Return all stored details on invoices, of tenants and of the issuer."""
    return list(session.scalars(select(BookProfile).order_by(BookProfile.tenant_id)))


def needs_two_people(session: Session) -> bool:
    """Return whether changes of adjustments and invoices need the approval of a second person."""
    return profile_of(session, ISSUER).is_two_person


def set_profile(session: Session, author: Author, tenant: str, change: ProfileChange) -> BookProfile:
    """Change the details on future invoices. Switching off two-person approval needs two people: the first call
    requests it, and the same call by another person confirms it.

    Raise NotFound on the tenant, InvalidRequest naming the fault, Conflict if the same person asks twice.
    """
    entry = begin_change(session, author, "book.profile", tenant or "issuer")
    if tenant:
        get_tenant(session, tenant)
    row = profile_of(session, tenant)
    if change.is_two_person is not None and tenant:
        raise InvalidRequest("two-person approval is set for the whole installation; leave the tenant out")
    before = {name: getattr(row, name) for name in _AUDITED}
    for name in _PLAIN_FIELDS:
        value = getattr(change, name)
        if value is not None:
            setattr(row, name, value)
    if change.is_two_person is not None:
        _set_two_person(session, row, author, change.is_two_person)
    if change.taxes is not None:
        row.taxes = {name: _percent(name, percent) for name, percent in change.taxes.items()}
    _check_profile(row)
    row.updated_at = author.at
    session.add(row)
    changed = [name for name in _AUDITED if getattr(row, name) != before[name]]
    entry.detail = {
        "before": {name: before[name] for name in changed},
        "after": {name: getattr(row, name) for name in changed},
    }
    session.flush()
    return row


def _set_two_person(session: Session, row: BookProfile, author: Author, wanted: bool) -> None:
    if wanted or not row.is_two_person:
        row.is_two_person, row.one_person_asked_by = wanted, ""
    elif not row.one_person_asked_by:
        row.one_person_asked_by = author.name
    elif is_same_person(session, row.one_person_asked_by, author.name):
        raise Conflict(
            f"{person_of(row.one_person_asked_by)} asked for it; another person must end two-person approval "
            "(`tollkeeper books profile --one-person`)",
            param="is_two_person",
        )
    else:
        row.is_two_person, row.one_person_asked_by = False, ""


def _check_profile(row: BookProfile) -> None:
    for name, most in (("legal_name", 200), ("address", 1000), ("tax_id", 60), ("purchase_order", 100)):
        length = len(getattr(row, name))
        if length > most:
            raise InvalidRequest(f"{name} has {length} characters, at most {most} are kept", param=name)
    if not _CURRENCY.fullmatch(row.currency):
        raise InvalidRequest(
            f"{row.currency[:10]!r} is not a currency; give an ISO 4217 code such as EUR", param="currency"
        )
    if not 0 <= row.due_days <= _MAX_DUE_DAYS:
        raise InvalidRequest(f"due_days is {row.due_days}; give 0 to {_MAX_DUE_DAYS}", param="due_days")


def _percent(name: str, written: str) -> str:
    try:
        percent = Decimal(written)
    except InvalidOperation as error:
        raise InvalidRequest(
            f"the tax {name!r} has {written[:20]!r} percent, which is not a number", param="taxes"
        ) from error
    if not percent.is_finite() or not 0 <= percent <= 100:
        raise InvalidRequest(f"the tax {name!r} is {written} %; give 0 to 100", param="taxes")
    return format(percent, "f")


def period_of(session: Session, tenant: str, month: str) -> BookPeriod | None:
    """Return a month's row; `None` if it is an untouched draft."""
    return session.get(BookPeriod, (tenant, month))


def list_periods(session: Session, *, tenant: str = "") -> list[BookPeriod]:
    """Return the months that are in review or closed, latest first; of one tenant if named."""
    wanted = select(BookPeriod).order_by(BookPeriod.month.desc(), BookPeriod.tenant_id)
    return list(session.scalars(wanted.where(BookPeriod.tenant_id == tenant) if tenant else wanted))


def closed_periods(session: Session, tenants: Iterable[str] = ()) -> dict[tuple[str, str], str]:
    """Return the invoices that closed months, by tenant and month; of some tenants if named."""
    wanted = select(BookPeriod.tenant_id, BookPeriod.month, BookPeriod.invoice).where(BookPeriod.state == "closed")
    named = sorted(set(tenants))
    if named:
        wanted = wanted.where(BookPeriod.tenant_id.in_(named))
    return {(tenant, month): invoice for tenant, month, invoice in session.execute(wanted)}


def refuse_closed(session: Session, months: Iterable[tuple[str, str]]) -> None:
    """Raise Conflict if one of these months of tenants is closed; the message says how to correct it."""
    wanted = set(months)
    closed = closed_periods(session, (tenant for tenant, _ in wanted))
    for tenant, month in sorted(wanted & closed.keys()):
        invoice = closed[tenant, month]
        by = f"by invoice {invoice}" if invoice else "without an invoice"
        credit = f"`tollkeeper books credit {invoice} --usd AMOUNT --reason TEXT`" if invoice else "there is no invoice"
        raise Conflict(
            f"{month} of {tenant} is closed {by}, and nothing was booked. Correct it by a credit note in the open "
            f"month ({credit}), or reopen it (`tollkeeper books reopen {month} --tenant {tenant} --reason TEXT`)",
            param="month",
        )


def set_period(session: Session, author: Author, tenant: str, month: str, state: str, reason: str = "") -> BookPeriod:
    """Write a month's state within an open change, and clear a pending request for another person."""
    row = period_of(session, tenant, month) or BookPeriod(tenant_id=tenant, month=month, version=0, invoice="")
    row.state, row.reason = state, reason[:500]
    row.changed_by, row.changed_at = author.name, author.at
    row.wish, row.wished_by = "", ""
    session.add(row)
    session.flush()
    return row


def write_document(session: Session, author: Author, new: NewDocument) -> BookDocument:
    """Write a document in the transaction that takes its number, so that numbers have no gaps."""
    row = BookDocument(
        number=new.number,
        kind=new.kind,
        tenant_id=new.tenant,
        month=new.month,
        version=new.version,
        corrects=new.corrects,
        adjustment_id=new.adjustment,
        reason=new.reason,
        author=author.name,
        issued_at=new.issued_at,
        due_at=new.due_at,
        currency=new.currency,
        usd_rate=new.usd_rate,
        net_usd=new.net_usd,
        net_by_month=dict(new.net_by_month),
        subtotal=new.subtotal,
        tax=new.tax,
        taxes=[[name, format(percent, "f"), format(amount, "f")] for name, percent, amount in new.taxes],
        payable=new.payable,
        terms=[[name, format(amount, "f")] for name, amount in new.terms],
        html=new.html,
        pdf_base64=base64.b64encode(new.pdf).decode(),
        digest=document_digest(new.html, new.pdf),
    )
    session.add(row)
    session.flush()
    return row


def next_number(session: Session, kind: DocumentKind, issued_on: date) -> str:
    """Return the next document number of a kind in the year of its issue, such as INV-2026-00001."""
    prefix = f"{_PREFIXES[kind]}-{issued_on:%Y}-"
    # By length first: INV-2026-100000 comes after INV-2026-99999.
    latest = (func.length(BookDocument.number).desc(), BookDocument.number.desc())
    numbers = select(BookDocument.number).where(BookDocument.number.startswith(prefix)).order_by(*latest).limit(1)
    last = session.scalar(numbers)
    return f"{prefix}{int(last.rpartition('-')[2]) + 1 if last else 1:05d}"


def get_document(session: Session, number: str, *, tenant: str = "") -> BookDocument:
    """Return an issued document. Raise NotFound, also if it belongs to another tenant than the given one."""
    row = session.get(BookDocument, number)
    if row is None or (tenant and row.tenant_id != tenant):
        raise NotFound(
            f"there is no invoice or credit note {number[:60]!r}; `tollkeeper books list` shows the register",
            rows=[row_name(BookDocument, number)],
        )
    return row


def list_documents(session: Session, *, tenant: str = "", month: str = "") -> list[BookDocument]:
    """Return the register in the order of issue; of one tenant or month if named."""
    wanted = select(BookDocument).order_by(BookDocument.issued_at, BookDocument.number)
    if tenant:
        wanted = wanted.where(BookDocument.tenant_id == tenant)
    if month:
        wanted = wanted.where(BookDocument.month == month)
    return list(session.scalars(wanted))


def unpaged_documents(session: Session, *, tenant: str = "") -> list[BookDocument]:
    """Return the register without the documents' pages, in the order of issue; of one tenant if named."""
    pages = (defer(BookDocument.html, raiseload=True), defer(BookDocument.pdf_base64, raiseload=True))
    wanted = select(BookDocument).options(*pages).order_by(BookDocument.issued_at, BookDocument.number)
    return list(session.scalars(wanted.where(BookDocument.tenant_id == tenant) if tenant else wanted))


def pdf_of(row: BookDocument) -> bytes:
    """Return a document's PDF, byte for byte as it was issued."""
    return base64.b64decode(row.pdf_base64)


def document_digest(html: str, pdf: bytes) -> str:
    """Return the SHA-256 over a document's HTML and PDF."""
    return hashlib.sha256(html.encode() + b"\0" + pdf).hexdigest()


def is_as_issued(row: BookDocument) -> bool:
    """Return whether a document's content still has the digest that it was issued with."""
    return document_digest(row.html, pdf_of(row)) == row.digest
