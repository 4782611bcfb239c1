"""Forecast for a page of all tenants together, one tenant, or one of its teams."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.forecast.history import SpendHistory, history_of, spend_histories
from analytics.forecast.spend import HISTORY, LEVEL, SpendForecast, forecast_of
from analytics.query_time import QueryTime
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class OutlookTask:
    """Input of a forecast for a worker process: the history, and today's date (UTC)."""

    history: SpendHistory
    today: date
    days: int = 30
    level: float = LEVEL

    def forecast(self) -> SpendForecast:
        """Compute the forecast. Takes 0.1 s; the first time in a process, seconds and 100 MB of memory."""
        return forecast_of(self.history.tenant, self.history, self.today, days=self.days, level=self.level)


def outlook_task(
    store: StoreClient, asked: QueryTime, tenant: str | None = None, team: str | None = None
) -> OutlookTask | None:
    """Read the input of a forecast of all tenants together, one tenant, or one of its teams.

    `None` without requests in half a year. The forecast of all is not the sum of tenants' forecasts, whose errors
    cancel out. One tenant's is the same as by `forecast_spend`. Raises StoreUnavailable, and InvalidRequest on a team
    without its tenant.
    """
    if team is not None and tenant is None:
        raise InvalidRequest("a team is one of a tenant's; name the tenant too", param="tenant")
    today = asked.moment.astimezone(UTC).date()
    first, until = today - HISTORY, today + timedelta(days=1)
    if team is not None:
        history = _of_team(store, tenant, team, first, until, asked.moment)
    else:
        history = _together(list(spend_histories(store, first, until, tenant).values()), until)
    return None if history is None else OutlookTask(history, today)


def _together(histories: list[SpendHistory], until: date) -> SpendHistory | None:
    if len(histories) <= 1:
        return histories[0] if histories else None
    days: dict[date, tuple[int, int]] = {}
    for history in histories:
        for place, (spent, requests) in enumerate(zip(history.pico_usd, history.requests, strict=True)):
            day = history.first_day + timedelta(days=place)
            sofar = days.get(day, (0, 0))
            days[day] = sofar[0] + spent, sofar[1] + requests
    return history_of("", days, until, sum(history.unpriced for history in histories))


def _of_team(
    store: StoreClient, tenant: str | None, team: str, first: date, until: date, now: datetime
) -> SpendHistory | None:
    start, end = (datetime(day.year, day.month, day.day, tzinfo=UTC) for day in (first, until))
    question = CostQuestion(start, end, grain="day", tenant=tenant, team=team, asked_at=now)
    lines = cost_report(store, question, stays_with_sums=True).lines
    if not lines:
        return None
    days = {line.period.start.date(): (line.sums.priced_pico_usd, line.sums.requests) for line in lines}
    return history_of(tenant or "", days, until, sum(line.sums.unpriced_requests for line in lines))
