"""Corrections of recorded cost, closed months and invoices over HTTP, as `tollkeeper books` on the command line."""

from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from analytics.api.access import Bookkeeper, Reader
from analytics.api.store import Database, Store
from analytics.books.booking import RerateWish, book_rerate, book_reversal, preview_rerate
from analytics.books.closing import (
    book_decision,
    close_month,
    credit_invoice,
    reopen_month,
    review_month,
    usage_of_unknown_tenants,
)
from analytics.books.rendering import adjustment_as_json, document_as_json, period_as_json, preview_as_json
from analytics.books.rerating import RerateQuestion
from backends.control.book_periods import get_document, list_documents, list_periods, pdf_of
from backends.control.books import MAX_REASON, entries_of, get_adjustment, list_adjustments
from contracts.errors import NotFound
from contracts.pricing.money import usd
from contracts.recording.moments import utc_now

router = APIRouter(prefix="/v1/books", tags=["books"])

Name = Annotated[str, Field(max_length=200)]
Month = Annotated[str, Path(pattern=r"^\d{4}-\d{2}$", description="Such as 2026-11")]
Reason = Annotated[str, Field(min_length=1, max_length=MAX_REASON, description="Reason; shown with the correction")]


class RerateBody(BaseModel):
    """Requests to price again, the price card, and the reason."""

    model_config = ConfigDict(extra="forbid")

    first: date = Field(alias="from", description="Date in each tenant's time zone")
    after: date = Field(alias="to", description="Exclusive")
    tenant: Name = Field(default="", description="Empty: all tenants")
    model: Name = Field(default="", description="Empty: all models")
    card: Name = Field(default="", description="A price card's version; empty: the card valid for each request")
    reason: Reason
    propose: bool = Field(default=False, description="Write a proposal; another person must approve it")
    apply: bool = Field(default=False, description="False: only compute what would be booked")
    digest: Annotated[str, Field(max_length=64)] = Field(
        default="", description="A preview's digest: refused with 409 if the correction has changed"
    )


class ReasonBody(BaseModel):
    """Reason of a change."""

    model_config = ConfigDict(extra="forbid")

    reason: Reason


class TenantBody(BaseModel):
    """Tenant of the month."""

    model_config = ConfigDict(extra="forbid")

    tenant: Name = Field(default="", description="Empty: all tenants")


class TenantReasonBody(BaseModel):
    """Tenant of the month, and the reason."""

    model_config = ConfigDict(extra="forbid")

    tenant: Annotated[str, Field(min_length=1, max_length=63)]
    reason: Reason


class CreditBody(BaseModel):
    """Amount to credit, and the reason."""

    model_config = ConfigDict(extra="forbid")

    amount_usd: Decimal = Field(max_digits=18, decimal_places=12, gt=0, description="Decimal text, above 0")
    reason: Reason


@router.post("/rerate", summary="Price recorded requests again and book the difference")
def rerate(body: RerateBody, author: Bookkeeper, store: Store, database: Database) -> dict[str, Any]:
    """Compute a correction's entries, and book them with `apply`. Repeating a correction books nothing."""
    question = RerateQuestion(body.first, body.after, utc_now(), body.tenant, body.model)
    wish = RerateWish(question, body.card, body.reason, body.propose, body.digest)
    if not body.apply:
        return {**preview_as_json(preview_rerate(store, database, wish)), "adjustment": None}
    row, preview = book_rerate(store, database, author, wish)
    return {**preview_as_json(preview), "adjustment": None if row is None else adjustment_as_json(row)}


@router.get("/adjustments", summary="List adjustments, oldest first")
def adjustments(
    reader: Reader,
    database: Database,
    tenant: Name | None = None,
    after: Annotated[str, Field(max_length=40)] = "",
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> dict[str, Any]:
    """Return adjustments, oldest first; for a tenant's caller, those with entries of this tenant."""
    reader.require_no_team()
    wanted, _ = reader.narrowed(tenant)
    with database.session() as session:
        rows = list_adjustments(session, tenant=wanted or "", after=after, limit=limit + 1)
        data = [_shown(adjustment_as_json(row), wanted) for row in rows[:limit]]
    return {"data": data, "has_more": len(rows) > limit}


@router.get("/adjustments/{adjustment_id}", summary="Get an adjustment with its entries")
def adjustment(adjustment_id: str, reader: Reader, database: Database) -> dict[str, Any]:
    """Return an adjustment with its entries; for a tenant's caller, only this tenant's entries."""
    reader.require_no_team()
    with database.session() as session:
        row = get_adjustment(session, adjustment_id)
        entries = entries_of(session, adjustment_id, tenant=reader.tenant or "")
        if reader.tenant is not None and not entries:
            raise NotFound(f"there is no adjustment {adjustment_id!r}; GET /v1/books/adjustments lists them")
        return _shown(adjustment_as_json(row, entries), reader.tenant)


@router.post("/adjustments/{adjustment_id}/reverse", summary="Undo a booked adjustment by counter-entries")
def reverse(
    adjustment_id: str, body: ReasonBody, author: Bookkeeper, store: Store, database: Database
) -> dict[str, Any]:
    """Book entries that cancel an adjustment. Status 409 if it is reversed already."""
    return adjustment_as_json(book_reversal(store, database, author, adjustment_id, body.reason))


@router.post("/adjustments/{adjustment_id}/approve", summary="Book a proposed adjustment")
def approve(adjustment_id: str, author: Bookkeeper, store: Store, database: Database) -> dict[str, Any]:
    """Book a proposed adjustment. Status 409 for the person who proposed it."""
    row, document = book_decision(store, database, author, adjustment_id, is_approved=True)
    return {**adjustment_as_json(row), "document": None if document is None else document_as_json(document)}


@router.post("/adjustments/{adjustment_id}/reject", summary="Reject a proposed adjustment")
def reject(adjustment_id: str, author: Bookkeeper, store: Store, database: Database) -> dict[str, Any]:
    """Reject a proposed adjustment, which remains listed and never counts."""
    return adjustment_as_json(book_decision(store, database, author, adjustment_id, is_approved=False)[0])


@router.get("/periods", summary="List months in review or closed, latest first")
def periods(reader: Reader, database: Database, tenant: Name | None = None) -> dict[str, Any]:
    """Return months in review or closed, latest first; others are drafts. Limited to the caller's tenant."""
    reader.require_no_team()
    wanted, _ = reader.narrowed(tenant)
    with database.session() as session:
        return {"data": [period_as_json(row) for row in list_periods(session, tenant=wanted or "")]}


@router.post("/periods/{month}/close", summary="Close a month and issue its invoices")
def close(month: Month, body: TenantBody, author: Bookkeeper, store: Store, database: Database) -> dict[str, Any]:
    """Close the month of one tenant, or of all tenants with it open. `refused`: reasons why a tenant's month remains
    open; `not_billed`: usage under names that are not tenants.
    """
    done = close_month(store, database, author, month, tenant=body.tenant)
    closed = [
        {
            "tenant": one.tenant,
            "month": one.month,
            "document": None if one.document is None else document_as_json(one.document),
            "refused": one.refused or None,
        }
        for one in done
    ]
    strangers = {} if body.tenant else usage_of_unknown_tenants(store, database, month, author.at)
    return {"data": closed, "not_billed": {name: format(usd(amount), "f") for name, amount in strangers.items()}}


@router.post("/periods/{month}/review", summary="Put a tenant's month into review")
def review(month: Month, body: TenantReasonBody, author: Bookkeeper, database: Database) -> dict[str, Any]:
    """Put a tenant's month into review. If two people are required, another person must close it."""
    return period_as_json(review_month(database, author, month, body.tenant, body.reason))


@router.post("/periods/{month}/reopen", summary="Reopen a tenant's closed month and cancel its invoice")
def reopen(month: Month, body: TenantReasonBody, author: Bookkeeper, database: Database) -> dict[str, Any]:
    """Reopen a tenant's closed month and cancel its invoice. If two people are required, two must call it."""
    row, document = reopen_month(database, author, month, body.tenant, body.reason)
    return {**period_as_json(row), "document": None if document is None else document_as_json(document)}


@router.get("/documents", summary="List issued invoices, credit notes and cancellations")
def documents(reader: Reader, database: Database, tenant: Name | None = None, month: Name = "") -> dict[str, Any]:
    """Return issued documents in order of issue, limited to the caller's tenant."""
    reader.require_no_team()
    wanted, _ = reader.narrowed(tenant)
    with database.session() as session:
        rows = list_documents(session, tenant=wanted or "", month=month)
        return {"data": [document_as_json(row) for row in rows]}


@router.get("/documents/{number}", summary="Get an issued document, as JSON, HTML or PDF")
def document(
    number: Name, reader: Reader, database: Database, form: Literal["json", "html", "pdf"] = "json"
) -> Response:
    """Return an issued document. HTML and PDF have the same bytes as when it was issued."""
    reader.require_no_team()
    with database.session() as session:
        row = get_document(session, number, tenant=reader.tenant or "")
        if form == "html":
            # Defence in depth: names are escaped, and the page may not run scripts.
            safe = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
            return Response(row.html, media_type="text/html; charset=utf-8", headers=safe)
        if form == "pdf":
            return Response(pdf_of(row), media_type="application/pdf")
        return JSONResponse(document_as_json(row))


@router.post("/documents/{number}/credit", summary="Credit an amount on an issued invoice")
def credit(number: Name, body: CreditBody, author: Bookkeeper, store: Store, database: Database) -> dict[str, Any]:
    """Book a credit in the open month and issue a credit note; if two people are required, only propose it."""
    row, note = credit_invoice(store, database, author, number, body.amount_usd, body.reason)
    return {**adjustment_as_json(row), "document": None if note is None else document_as_json(note)}


def _shown(adjustment: dict[str, Any], tenant: str | None) -> dict[str, Any]:
    """Return an adjustment as a tenant may see it: without total and count, which include other tenants."""
    if tenant is None or adjustment["tenant"] == tenant:
        return adjustment
    hidden = ("amount_usd", "entry_count", "digest", "author", "approved_by")
    return {name: None if name in hidden else value for name, value in adjustment.items()}
