"""Data of the books page: months, issued documents and corrections, of all tenants or of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control.book_periods import get_document, is_as_issued, list_periods, pdf_of
from backends.control.books import entries_of, get_adjustment
from contracts.control import BookAdjustment, BookDocument, BookEntry, BookPeriod
from contracts.pricing.book_entries import Entry
from contracts.pricing.money import usd

_MOST: Final = 500  # maximum number of documents, and of adjustments; newest first
# Without the rendered pages, which are large.
_OF_DOCUMENT: Final = (
    *(BookDocument.number, BookDocument.kind, BookDocument.tenant_id, BookDocument.month, BookDocument.version),
    *(BookDocument.corrects, BookDocument.issued_at, BookDocument.due_at, BookDocument.currency),
    *(BookDocument.net_usd, BookDocument.subtotal, BookDocument.tax, BookDocument.payable, BookDocument.author),
)


@dataclass(frozen=True, slots=True)
class IssuedDocument:
    """An issued document without its rendered pages; amounts are in `currency`, except `net_usd`."""

    number: str
    kind: str
    tenant: str
    month: str
    version: int
    corrects: str
    issued_at: datetime
    due_at: datetime | None
    currency: str
    net_usd: Decimal
    subtotal: Decimal
    tax: Decimal
    payable: Decimal
    author: str


@dataclass(frozen=True, slots=True)
class BookBoard:
    """Months in review or closed, documents and adjustments, newest first. `amounts`: sums of one tenant's entries, if
    the query is for one tenant."""

    periods: tuple[BookPeriod, ...]
    documents: tuple[IssuedDocument, ...]
    adjustments: tuple[BookAdjustment, ...]
    amounts: Mapping[str, Decimal]
    has_more: bool


@dataclass(frozen=True, slots=True)
class DocumentPages:
    """A document's pages as issued, and whether they are unchanged since."""

    html: str
    pdf: bytes
    digest: str
    is_as_issued: bool
    reason: str


def book_board(session: Session, tenant: str | None = None) -> BookBoard:
    """Return months, documents and adjustments of all tenants, or of one."""
    documents = (
        select(*_OF_DOCUMENT).order_by(BookDocument.issued_at.desc(), BookDocument.number.desc()).limit(_MOST + 1)
    )
    adjustments = select(BookAdjustment).order_by(BookAdjustment.id.desc()).limit(_MOST + 1)
    if tenant is not None:
        documents = documents.where(BookDocument.tenant_id == tenant)
        of_tenant = select(BookEntry.adjustment_id).where(BookEntry.tenant_id == tenant)
        adjustments = adjustments.where(BookAdjustment.id.in_(of_tenant))
    found = list(session.scalars(adjustments))
    rows: Any = session.execute(documents).all()
    issued = [IssuedDocument(*row) for row in rows]
    amounts = {row.id: row.amount_usd for row in found if tenant in (None, row.tenant_id)}
    for row in found:
        if row.id not in amounts:  # an adjustment may cover several tenants
            own = entries_of(session, row.id, tenant=tenant or "")
            amounts[row.id] = usd(sum(entry.effect.amount_pico_usd for entry in own))
    return BookBoard(
        tuple(list_periods(session, tenant=tenant or "")),
        tuple(issued[:_MOST]),
        tuple(found[:_MOST]),
        amounts,
        len(issued) > _MOST or len(found) > _MOST,
    )


def document_pages(session: Session, number: str, tenant: str | None = None) -> DocumentPages:
    """Return a document's pages. Raises NotFound if it does not exist, or is not of `tenant` if given."""
    row = get_document(session, number, tenant=tenant or "")
    return DocumentPages(row.html, pdf_of(row), row.digest, is_as_issued(row), row.reason)


def adjustment_entries(session: Session, adjustment_id: str, tenant: str | None = None) -> tuple[Entry, ...]:
    """Return an adjustment's entries, only of `tenant` if given. Raises NotFound."""
    get_adjustment(session, adjustment_id)
    return tuple(entries_of(session, adjustment_id, tenant=tenant or ""))
