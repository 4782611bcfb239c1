"""Forecasts, anomalies and savings over HTTP, as `tollkeeper forecast`, `anomalies` and `savings` print with --json."""

from datetime import date, timedelta
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from analytics.anomaly.spend import anomalies_on
from analytics.api.access import Reader
from analytics.api.store import Database, Store
from analytics.recommendations.reading import recommendations
from backends.control.prices import load_cards
from contracts.recording.moments import utc_now

router = APIRouter(prefix="/v1/spending", tags=["spending"])

Day = Annotated[date, Field(ge=date(2000, 1, 1), le=date(2100, 1, 1))]  # the store's times range from 1970 to 2106


@router.get("/forecast", summary="Forecast spending by day and for the month, with intervals")
def forecast(
    reader: Reader,
    store: Store,
    tenant: str | None = None,
    days: Annotated[int, Field(ge=1, le=92)] = 30,
    level: Annotated[float, Field(ge=0.5, le=0.99)] = 0.8,
) -> dict[str, Any]:
    """Return a forecast per tenant, or the `reason` why there is none. Takes 0.1 s per tenant."""
    from analytics.forecast.spend import forecast_spend  # imported here: it takes seconds, and is rarely called

    reader.require_no_team()
    wanted, _ = reader.narrowed(tenant)
    found = forecast_spend(store, utc_now(), tenant=wanted, days=days, level=level)
    return {"data": [each.as_json() for each in found]}


@router.get("/anomalies", summary="List tenants with unusual spending on a day, by cause")
def anomalies(reader: Reader, store: Store, tenant: str | None = None, day: Day | None = None) -> dict[str, Any]:
    """Return tenants with unusual spending on a day (default: yesterday, UTC), largest difference first. Today counts
    up to its last completed hour.
    """
    reader.require_no_team()
    wanted, _ = reader.narrowed(tenant)
    return {"data": [each.as_json() for each in anomalies_on(store, utc_now(), day, tenant=wanted)]}


@router.get("/savings", summary="Recommend savings, largest first")
def savings(
    reader: Reader,
    store: Store,
    database: Database,
    tenant: str | None = None,
    days: Annotated[int, Field(ge=1, le=31)] = 7,
) -> dict[str, Any]:
    """Return recommended savings at current prices, largest first. Do not add them up: requests may count twice."""
    reader.require_no_team()
    wanted, _ = reader.narrowed(tenant)
    with database.session() as session:
        cards = load_cards(session)
    found = recommendations(store, cards, utc_now(), timedelta(days=days), tenant=wanted)
    return {"data": [each.as_json() for each in found]}
