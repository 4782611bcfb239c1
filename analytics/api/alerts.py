"""Open and past alerts over HTTP, as `tollkeeper alerts list --json` prints them."""

from typing import Annotated

from fastapi import APIRouter, Query

from analytics.api.access import Reader
from analytics.api.pages import Page, Wanted, page_of
from analytics.api.store import Database
from backends.control.alert_log import alert_facts, list_alerts

router = APIRouter(prefix="/v1/alerts", tags=["alerts"])

IsOpen = Annotated[bool, Query(alias="open", description="Only open alerts")]


@router.get("", summary="List alerts, latest first")
def list_all(wanted: Wanted, reader: Reader, database: Database, is_open: IsOpen = False) -> Page:
    """Return alerts, latest first, limited to the caller's tenant or team."""
    with database.session() as session:
        rows = list_alerts(
            session,
            tenant=reader.tenant or "",
            team=reader.team or "",
            is_open=is_open,
            before=wanted.after,
            limit=wanted.limit + 1,
        )
        return page_of([alert_facts(row) for row in rows], wanted.limit)
