"""Changes in answers against a reference period, over HTTP, as `tollkeeper alerts quality --json`."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from analytics.api.access import Reader
from analytics.api.store import Store
from analytics.quality.report import quality_report
from contracts.recording.moments import utc_now

router = APIRouter(prefix="/v1/quality", tags=["quality"])


@router.get(
    "", summary="Compare lengths, refusals, finish reasons, tool calls and schema failures with a reference period"
)
def report(
    reader: Reader,
    store: Store,
    hours: Annotated[int, Field(ge=1, le=24 * 31)] = 24,
    reference_days: Annotated[int, Field(ge=1, le=90)] = 7,
    tenant: str | None = None,
    model: str | None = None,
) -> dict[str, Any]:
    """Compare the answers of the last hours with those of the days before, by tenant and model."""
    wanted, team = reader.narrowed(tenant)
    now = utc_now()
    window, reference = timedelta(hours=hours), timedelta(days=reference_days)
    found = quality_report(store, now, window, reference, tenant=wanted, team=team, model=model)
    return {"hours": hours, "reference_days": reference_days, "data": [each.as_json() for each in found]}
