"""Providers' bills over HTTP: imported, listed, and compared with recorded usage; what `tollkeeper reconcile` does."""

from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from analytics.api.access import Bookkeeper
from analytics.api.store import Database, Store
from analytics.reconciliation.importing import BillFile, import_bill
from analytics.reconciliation.report import bill_as_json, keep, reconcile, reconciled_as_json
from backends.control.provider_bills import bill_names, delete_bill, get_bill, list_bills, set_bill_names
from contracts.recording.moments import utc_now

router = APIRouter(prefix="/v1/reconciliation", tags=["reconciliation"])

Provider = Annotated[str, Path(max_length=63, description="Provider, as its targets name it")]
Month = Annotated[str, Path(pattern=r"^\d{4}-\d{2}$", description="In UTC, such as 2026-11")]
Text = Annotated[str, Query(max_length=200)]


class NamesBody(BaseModel):
    """Mapping of names in a provider's bills; null removes one."""

    model_config = ConfigDict(extra="forbid")

    keys: dict[str, str | None] = Field(default_factory=dict, max_length=1_000, description="Bill's key to target")
    models: dict[str, str | None] = Field(
        default_factory=dict, max_length=1_000, description="Bill's model name to model name"
    )


@router.post("/bills", summary="Import a provider's bill, all or nothing")
async def import_one(
    request: Request,
    author: Bookkeeper,
    database: Database,
    month: Text = "",
    provider: Text = "",
    format: Text = "",
    name: Text = "",
    usd_rate: Annotated[
        Decimal | None, Query(gt=0, description="Exchange rate: USD per unit of the bill's currency")
    ] = None,
    replace: bool = False,
) -> dict[str, Any]:
    """Import a bill from the body, at most `TOLLKEEPER_ANALYTICS_MAX_BODY_BYTES`; larger ones by command line."""
    file = BillFile(await request.body(), name, month, provider, format, usd_rate, replace)
    return bill_as_json(import_bill(database, author, file))


@router.get("/bills", summary="List imported bills, oldest first")
def bills(author: Bookkeeper, database: Database, provider: Text = "", month: Text = "") -> dict[str, Any]:
    """Return imported bills, oldest first. Roles: owner, admin and finance of the installation."""
    with database.session() as session:
        return {"data": [bill_as_json(row) for row in list_bills(session, provider=provider, month=month)]}


@router.delete("/bills/{bill_id}", summary="Delete an imported bill")
def delete_one(bill_id: str, author: Bookkeeper, database: Database) -> dict[str, Any]:
    """Delete an imported bill, whose file can be imported again."""
    with database.session() as session:
        row = bill_as_json(get_bill(session, bill_id))
        delete_bill(session, author, bill_id)
    return {"id": row["id"], "deleted": True}


@router.get("/{provider}/names", summary="List the mapping of names in a provider's bills")
def names(provider: Provider, author: Bookkeeper, database: Database) -> dict[str, Any]:
    """Return keys with the targets that use them, and models with their names in requests."""
    with database.session() as session:
        rows = bill_names(session, provider)
        return {f"{kind}s": {row.name: row.meaning for row in rows if row.kind == kind} for kind in ("key", "model")}


@router.post("/{provider}/names", summary="Map names in a provider's bills")
def set_names(provider: Provider, body: NamesBody, author: Bookkeeper, database: Database) -> dict[str, Any]:
    """Set the given mappings of names; others are unchanged."""
    with database.session() as session:
        for kind, stated in (("key", body.keys), ("model", body.models)):
            if stated:
                set_bill_names(session, author, provider, kind, stated)
    return names(provider, author, database)


@router.get("/{provider}/{month}", summary="Compare a provider's bill with recorded usage")
def report(
    provider: Provider,
    month: Month,
    author: Bookkeeper,
    store: Store,
    database: Database,
    day: Text = "",
    model: Text = "",
    cause: Text = "",
    limit: Annotated[int, Query(ge=0, le=10_000)] = 100,
) -> dict[str, Any]:
    """Return sums by cause, and the largest differences, optionally of one day, model or cause."""
    with database.session() as session:
        found = reconcile(store, session, provider, month, utc_now())
        keep(session, found)
    return reconciled_as_json(found, day=day, model=model, cause=cause, limit=limit)
