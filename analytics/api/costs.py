"""Cost reports over HTTP: the output of `tollkeeper cost report --json`, in pages."""

from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, cast
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query
from pydantic import Field

from analytics.api.access import Reader
from analytics.api.store import Store
from analytics.cost.periods import PeriodGrain, time_zone
from analytics.cost.question import CostQuestion
from analytics.cost.rendering import report_as_json
from analytics.cost.report import cost_report
from contracts.errors import InvalidRequest

router = APIRouter(prefix="/v1/costs", tags=["costs"])

Name = Annotated[str, Field(max_length=200)]
Moment = Annotated[str, Field(max_length=40, description="Date in `tz`, or time with a zone; `to` is exclusive")]


def _moment_of(text: str, zone: ZoneInfo, name: str) -> datetime:
    """Parse a date (its start in `zone`) or a time with a zone. Raises InvalidRequest."""
    found: datetime | None = None
    with suppress(ValueError):
        found = datetime.fromisoformat(text)
    if found is not None and found.tzinfo is None and len(text) <= len("2026-11-01"):
        return found.replace(tzinfo=zone)
    if found is None or found.tzinfo is None:
        raise InvalidRequest(
            f"{name} is {text!r}; give a date such as 2026-11-01, which begins in the calendar of tz, or a time with a "
            "zone such as 2026-11-01T00:00:00Z",
            param=name,
        )
    return found.replace(microsecond=0)


@router.get("", summary="Report requests, tokens and cost by chosen levels")
def report(
    reader: Reader,
    store: Store,
    start: Annotated[Moment, Query(alias="from")],
    end: Annotated[Moment, Query(alias="to")],
    by: Annotated[Name, Query(description="Comma-separated levels, such as tenant,team,model,tag:feature")] = "",
    grain: PeriodGrain | None = None,
    tz: Annotated[Name, Query(description="Time zone of the grain")] = "UTC",
    tenant: Name | None = None,
    team: Name | None = None,
    project: Name | None = None,
    model: Name | None = None,
    attempts: Annotated[
        bool, Query(description="Include the cost of additional attempts, read from single requests")
    ] = False,
    offset: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=10_000, description="Maximum number of lines per level")] = 1000,
) -> dict[str, Any]:
    """Return the cost report, limited to the caller's tenant and team.

    If `has_more`, ask again with a larger `offset`. Totals are of all lines.
    """
    tenant, team = reader.narrowed(tenant, team)
    zone = time_zone(tz)
    question = CostQuestion(
        _moment_of(start, zone, "from"),
        _moment_of(end, zone, "to"),
        by=tuple(name.strip() for name in by.split(",") if name.strip()),
        grain=grain,
        zone=zone,
        tenant=tenant,
        team=team,
        project=project,
        model=model,
    )
    answer = report_as_json(cost_report(store, question, with_attempts=attempts))
    levels = cast("list[dict[str, Any]]", answer["levels"])
    has_more = any(len(level["lines"]) > offset + limit for level in levels)
    paged = [{**level, "lines": level["lines"][offset : offset + limit]} for level in levels]
    return {**answer, "levels": paged, "has_more": has_more}
