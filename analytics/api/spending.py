"""What tenants will spend, what was unusual and what could be saved: what `tollkeeper forecast --json` and its
neighbours print.
"""

from datetime import date, timedelta
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from analytics.anomaly.spend import anomalies_on
from analytics.api.access import Reader, utc_now
from analytics.api.store import Database, Store
from analytics.recommendations.reading import recommendations
from backends.control.prices import load_cards

router = APIRouter(prefix="/v1/spending", tags=["spending"])

Day = Annotated[date, Field(ge=date(2000, 1, 1), le=date(2100, 1, 1))]  # the store's clock begins 1970, ends 2106


@router.get("/forecast", summary="Spending in the days to come, with intervals, and at the month's end")
def forecast(
    reader: Reader,
    store: Store,
    tenant: str | None = None,
    days: Annotated[int, Field(ge=1, le=92)] = 30,
    level: Annotated[float, Field(ge=0.5, le=0.99)] = 0.8,
) -> dict[str, Any]:
    """One entry a tenant; `reason` says where too little is known. Takes a tenth of a second a tenant."""
    from analytics.forecast.spend import forecast_spend  # here: what it loads takes seconds, and few ask for it

    reader.require_no_team()
    wanted, _ = reader.narrowed(tenant)
    found = forecast_spend(store, utc_now(), tenant=wanted, days=days, level=level)
    return {"data": [each.as_json() for each in found]}


@router.get("/anomalies", summary="Tenants that spent unusually on a day, and what drove it")
def anomalies(reader: Reader, store: Store, tenant: str | None = None, day: Day | None = None) -> dict[str, Any]:
    """Yesterday (UTC) unless a day is given, the largest difference first. Of today the hours that are over."""
    reader.require_no_team()
    wanted, _ = reader.narrowed(tenant)
    return {"data": [each.as_json() for each in anomalies_on(store, utc_now(), day, tenant=wanted)]}


@router.get("/savings", summary="How to spend less, the largest saving first")
def savings(
    reader: Reader,
    store: Store,
    database: Database,
    tenant: str | None = None,
    days: Annotated[int, Field(ge=1, le=31)] = 7,
) -> dict[str, Any]:
    """By the price cards of now. Savings are not added up: two may speak of the same request."""
    reader.require_no_team()
    wanted, _ = reader.narrowed(tenant)
    with database.session() as session:
        cards = load_cards(session)
    found = recommendations(store, cards, utc_now(), timedelta(days=days), tenant=wanted)
    return {"data": [each.as_json() for each in found]}
