"""The books over HTTP: corrections of recorded cost, previewed and booked; what `tollkeeper books` does."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from analytics.api.access import Bookkeeper, Reader, utc_now
from analytics.api.store import Database, Store
from analytics.books.booking import RerateWish, book_decision, book_rerate, book_reversal, preview_rerate
from analytics.books.rendering import adjustment_as_json, preview_as_json
from analytics.books.rerating import RerateQuestion
from analytics.scope import Period
from backends.control.books import MAX_REASON, entries_of, get_adjustment, list_adjustments
from contracts.errors import NotFound

router = APIRouter(prefix="/v1/books", tags=["books"])

Name = Annotated[str, Field(max_length=200)]
Reason = Annotated[str, Field(min_length=1, max_length=MAX_REASON, description="Shown beside the correction")]


class RerateBody(BaseModel):
    """Which requests are priced again, by what, and why."""

    model_config = ConfigDict(extra="forbid")

    start: AwareDatetime = Field(alias="from")
    end: AwareDatetime = Field(alias="to", description="Exclusive")
    tenant: Name = Field(default="", description="Empty: all tenants")
    model: Name = Field(default="", description="Empty: all models")
    card: Name = Field(default="", description="A price card's version; empty: the card that holds for each request")
    reason: Reason
    propose: bool = Field(default=False, description="Write a proposal that another person approves")
    apply: bool = Field(default=False, description="False: only compute what would be booked")
    digest: Annotated[str, Field(max_length=64)] = Field(
        default="", description="A preview's digest: refused with 409 if the correction is another by now"
    )


class ReasonBody(BaseModel):
    """Why."""

    model_config = ConfigDict(extra="forbid")

    reason: Reason


@router.post("/rerate", summary="Price recorded requests again and book the difference")
def rerate(body: RerateBody, author: Bookkeeper, store: Store, database: Database) -> dict[str, Any]:
    """Without `apply` nothing is booked. The same correction twice books nothing the second time."""
    start, end = body.start.replace(microsecond=0), body.end.replace(microsecond=0)
    question = RerateQuestion(Period(start, end), utc_now(), body.tenant, body.model)
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
    """Held to the asker's tenant: those that have entries of it."""
    reader.require_no_team()
    wanted, _ = reader.narrowed(tenant)
    with database.session() as session:
        rows = list_adjustments(session, tenant=wanted or "", after=after, limit=limit + 1)
        data = [_shown(adjustment_as_json(row), wanted) for row in rows[:limit]]
    return {"data": data, "has_more": len(rows) > limit}


@router.get("/adjustments/{adjustment_id}", summary="Get an adjustment with its entries")
def adjustment(adjustment_id: str, reader: Reader, database: Database) -> dict[str, Any]:
    """Held to the asker's tenant: its entries alone."""
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
    """Refused with 409 if it was reversed before."""
    return adjustment_as_json(book_reversal(store, database, author, adjustment_id, body.reason))


@router.post("/adjustments/{adjustment_id}/approve", summary="Book a proposed adjustment")
def approve(adjustment_id: str, author: Bookkeeper, store: Store, database: Database) -> dict[str, Any]:
    """Refused with 409 for who proposed it."""
    return adjustment_as_json(book_decision(store, database, author, adjustment_id, is_approved=True))


@router.post("/adjustments/{adjustment_id}/reject", summary="Reject a proposed adjustment")
def reject(adjustment_id: str, author: Bookkeeper, store: Store, database: Database) -> dict[str, Any]:
    """It is kept and never counts."""
    return adjustment_as_json(book_decision(store, database, author, adjustment_id, is_approved=False))


def _shown(adjustment: dict[str, Any], tenant: str | None) -> dict[str, Any]:
    """Return an adjustment as a tenant sees it: its total and count are of other tenants as well."""
    if tenant is None or adjustment["tenant"] == tenant:
        return adjustment
    hidden = ("amount_usd", "entry_count", "digest", "author", "approved_by")
    return {name: None if name in hidden else value for name, value in adjustment.items()}
