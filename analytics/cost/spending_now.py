"""Reads spending of today, yesterday and the month so far in a time zone, from daily or hourly rollups."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from analytics.cost.periods import month_of
from analytics.cost.question import CostQuestion
from analytics.cost.report import CostReport, cost_report
from analytics.cost.sums import CostSum, total_of
from analytics.query_time import QueryTime
from analytics.scope import Period
from backends.store.client import StoreClient


@dataclass(frozen=True, slots=True)
class SpendingNow:
    """Sums of today, yesterday and this month. `day` and `month`: the current calendar periods, up to their end."""

    day: Period
    month: Period
    today: CostSum
    yesterday: CostSum
    month_to_date: CostSum


def spending_now(
    store: StoreClient,
    asked: QueryTime,
    zone: ZoneInfo,
    tenant: str | None = None,
    team: str | None = None,
    project: str | None = None,
    model: str | None = None,
) -> SpendingNow:
    """Return the spending of this month, today and yesterday in a time zone. Raises as `cost_report`.

    Same as `tollkeeper cost report` with --from at the start of the day or month, --to at the day's end, and --tz.
    """
    now = asked.moment
    local = now.astimezone(zone)
    midnights = [
        datetime.combine(local.date() + timedelta(days=days), time.min, zone).astimezone(UTC) for days in (-1, 0, 1)
    ]
    yesterday, day = Period(*midnights[:2]), Period(*midnights[1:])
    month = month_of(local.year, local.month, zone)
    question = CostQuestion(
        min(month.start, yesterday.start),
        day.end,
        grain="day",
        zone=zone,
        tenant=tenant,
        team=team,
        project=project,
        model=model,
        asked_at=now,
    )
    report = cost_report(store, question, stays_with_sums=True)
    return SpendingNow(
        day,
        month,
        today=_within(report, day),
        yesterday=_within(report, yesterday),
        month_to_date=_within(report, month),
    )


def _within(report: CostReport, period: Period) -> CostSum:
    return total_of(line.sums for line in report.lines if period.start <= line.period.start < period.end)
