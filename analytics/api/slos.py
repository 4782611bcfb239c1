"""States of objectives over HTTP, as `tollkeeper slos report --json` prints them."""

from typing import Any

from fastapi import APIRouter

from analytics.api.access import Reader
from analytics.api.pages import Page, Wanted, page_of
from analytics.api.store import Database, Store
from analytics.slo.report import slo_report
from backends.control.slos import get_slo, list_slos, objective_of
from contracts.recording.moments import utc_now

router = APIRouter(prefix="/v1/slos", tags=["objectives"])


@router.get("", summary="States of objectives")
def report(wanted: Wanted, reader: Reader, store: Store, database: Database) -> Page:
    """Return the state of objectives, limited to the caller's tenant; they cover all its teams."""
    with database.session() as session:
        rows = list_slos(session, tenant=reader.tenant or "", after=wanted.after, limit=wanted.limit + 1)
        objectives = [objective_of(row) for row in rows]
    standings = slo_report(store, objectives, utc_now())
    return page_of([standing.as_json() for standing in standings], wanted.limit)


@router.get("/{slo_id}", summary="State of one objective")
def one(slo_id: str, reader: Reader, store: Store, database: Database) -> dict[str, Any]:
    with database.session() as session:
        objective = objective_of(get_slo(session, slo_id, tenant=reader.tenant or ""))
    (standing,) = slo_report(store, [objective], utc_now())
    return standing.as_json()
