"""Scheduled cost reports for alert channels: the cost of each day, week or month, sent once after it is over."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, cast
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from sqlalchemy import select

from analytics.cost.periods import PeriodGrain, split
from analytics.cost.question import CostQuestion
from analytics.cost.report import CostReport, cost_report
from analytics.cost.sums import CostSum, total_of
from analytics.scope import Period
from backends.control.alert_log import write_delivery
from backends.control.database import ControlDatabase
from backends.store.client import StoreClient
from contracts.control import AlertChannel, Tenant
from contracts.pricing.money import usd

_SETTLES_AFTER: Final = timedelta(hours=2)  # delay after a period's end, for late records
_LOOKS_BACK: Final = {"day": timedelta(days=3), "week": timedelta(days=16), "month": timedelta(days=70)}
_MOST_LINES: Final = 10
_CENT: Final = Decimal("0.01")


class ChannelReports:
    """Writes reports to the outbox. Safe in several processes, because a report has the same id in each."""

    def __init__(self, database: ControlDatabase, store: StoreClient, now: Callable[[], datetime]) -> None:
        self._database = database
        self._store = store
        self._now = now

    def write_due(self) -> int:
        """Write the report of the last complete period for every channel with reports; return how many are new.

        Raises StoreUnavailable, ControlUnavailable; missing reports are written the next time.
        """
        now = self._now()
        with self._database.session() as session:
            rows = session.scalars(select(AlertChannel).where(AlertChannel.report != "").order_by(AlertChannel.id))
            channels = [(row, _zone(session.get(Tenant, row.tenant_id))) for row in rows]
            session.expunge_all()
        written = 0
        for channel, zone in channels:
            before, period = _last_two(cast(PeriodGrain, channel.report), zone, now)
            with self._database.session() as session:
                body = self._body(channel, before, period, zone, now)
                written += write_delivery(session, channel, "report", body, now)
        return written

    def _body(
        self, channel: AlertChannel, before: Period, period: Period, zone: ZoneInfo, now: datetime
    ) -> dict[str, object]:
        tenants: Sequence[str | None] = [channel.tenant_id] if channel.tenant_id else channel.tenants or [None]
        first = "team" if len(tenants) == 1 and tenants[0] else "tenant"
        asked = [(self._ask(period, zone, now, tenant), self._ask(before, zone, now, tenant)) for tenant in tenants]
        whose = ", ".join(tenant for tenant in tenants if tenant) or "all tenants"
        name = _name(channel.report, period, zone)
        return {
            "event": "report",
            "at": now.isoformat(),
            "title": f"Cost of {name} ({whose})",
            "lines": list(_lines([report for report, _ in asked], [earlier for _, earlier in asked], first)),
            "link": "/costs?" + urlencode({"tenant": tenants[0]} if len(tenants) == 1 and tenants[0] else {}),
            "alerts": [],
            "ids": [f"report:{channel.report}:{period.start.isoformat()}"],
        }

    def _ask(self, period: Period, zone: ZoneInfo, now: datetime, tenant: str | None) -> CostReport:
        by = ("tenant", "team", "model")
        question = CostQuestion(period.start, period.end, by, None, zone, tenant, asked_at=now)
        return cost_report(self._store, question, stays_with_sums=True)


def _zone(tenant: Tenant | None) -> ZoneInfo:
    return ZoneInfo("UTC" if tenant is None else tenant.time_zone)


def _last_two(grain: PeriodGrain, zone: ZoneInfo, now: datetime) -> tuple[Period, Period]:
    """Return the last two complete periods whose records have arrived, earlier one first."""
    until = now.replace(microsecond=0) - _SETTLES_AFTER + timedelta(seconds=1)
    pieces = split(Period(until - 2 * _LOOKS_BACK[grain], until), grain, zone)
    return pieces[-3], pieces[-2]  # the last period is not over


def _name(grain: str, period: Period, zone: ZoneInfo) -> str:
    first, last = period.start.astimezone(zone), period.end.astimezone(zone) - timedelta(days=1)
    if grain == "month":
        return f"{first:%B %Y}"
    return f"{first:%Y-%m-%d}" if grain == "day" else f"the week {first:%Y-%m-%d} to {last:%Y-%m-%d}"


def _lines(reports: Sequence[CostReport], earlier: Sequence[CostReport], first: str) -> Iterator[str]:
    total, before = total_of(one.total for one in reports), total_of(one.total for one in earlier)
    if not total.requests:
        yield "No requests."
        return
    change = ""
    if before.priced_pico_usd:
        percent = (total.priced_pico_usd - before.priced_pico_usd) * 100 / before.priced_pico_usd
        change = f", {percent:+.0f} % against the period before ({_money(before)})"
    yield f"Total: {_money(total)} for {total.requests:,} requests{change}"
    for level in (first, "model"):
        sums: dict[str, CostSum] = {}
        for report in reports:
            place = report.question.by.index(level)
            for line in report.lines:
                known = sums.get(line.path[place])
                sums[line.path[place]] = line.sums if known is None else known + line.sums
        ranked = sorted(sums.items(), key=lambda pair: (-pair[1].priced_pico_usd, pair[0]))
        for name, each in ranked[:_MOST_LINES]:
            yield f"{level} {name or '-'}: {_money(each)}, {each.requests:,} requests"
        if len(ranked) > _MOST_LINES:
            yield f"... and {len(ranked) - _MOST_LINES} more {level}s"
    if total.unpriced_requests or total.partly_unpriced_requests:
        count = total.unpriced_requests + total.partly_unpriced_requests
        yield f"Without a price, and not in these sums: {count:,} requests"
    if total.estimated_requests:
        estimated = _amount(usd(total.estimated_pico_usd))
        yield f"Estimated token counts: {estimated} of {total.estimated_requests:,} requests"
    if total.failed_requests:
        yield f"Failed: {total.failed_requests:,} requests, which cost nothing"


def _money(sums: CostSum) -> str:
    return "unknown cost" if sums.cost_usd is None else _amount(sums.cost_usd)


def _amount(amount: Decimal) -> str:
    return f"{amount:.6f} USD" if 0 < abs(amount) < _CENT else f"{amount:,.2f} USD"
