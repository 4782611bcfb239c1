"""What pages of the dashboard ask, and how long each page's queries take together, until the rows are Python's."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from analytics.anomaly.spend import spend_anomalies
from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.forecast.history import spend_histories
from analytics.overview import overview
from analytics.planner.recorded import MAX_REQUESTS
from analytics.queries import query
from analytics.scope import Scope
from analytics.series import series
from backends.store.client import StoreClient
from bench.report import Report

MUST_MS: Final = 300.0

Page = Callable[[StoreClient, datetime, datetime], object]


def _overview(length: timedelta) -> Page:
    def ask(reader: StoreClient, start: datetime, end: datetime) -> None:
        scope = Scope(max(end - length, start), end, asked_at=end)
        overview(reader, scope)
        series(reader, scope, "tenant")
        series(reader, scope, "model")

    return ask


def _tenant_overview(reader: StoreClient, start: datetime, end: datetime) -> None:
    scope = Scope(start, end, tenant="tenant-0001", asked_at=end)
    overview(reader, scope)
    series(reader, scope, "model")


def _cost(*by: str) -> Page:
    def ask(reader: StoreClient, start: datetime, end: datetime) -> None:
        cost_report(reader, CostQuestion(start, end, by, asked_at=end))

    return ask


def _spend(reader: StoreClient, start: datetime, end: datetime) -> None:
    spend_histories(reader, start.date(), end.date())


def _anomalies(reader: StoreClient, start: datetime, end: datetime) -> None:
    spend_anomalies(reader, end)


def _replay(reader: StoreClient, start: datetime, end: datetime) -> None:
    """Read what a plan of the busiest tenant's last hour replays."""
    parameters = {
        "start": int((end - timedelta(hours=1)).timestamp()),
        "end": int(end.timestamp()),
        "tenant": "tenant-0001",
        "model": None,
        "row_limit": MAX_REQUESTS,
    }
    reader.query(query("planned_requests"), parameters)


PAGES: Final[Mapping[str, Page]] = {
    "overview_1h": _overview(timedelta(hours=1)),
    "overview_1d": _overview(timedelta(days=1)),
    "overview_month": _overview(timedelta(days=31)),
    "tenant_month": _tenant_overview,
    "cost_by_tenant_and_model": _cost("tenant", "model"),
    "cost_by_tenant_and_team": _cost("tenant", "team"),
    "spend_history": _spend,
    "anomalies": _anomalies,
    "plan_replay_1h": _replay,
}


def page_rows(report: Report, reader: StoreClient, start: datetime, end: datetime, filled: int, asked: int) -> None:
    """Ask each page's set several times; `asked` is how many requests the bound is for, `filled` how many there are."""
    rounds = 10 if report.quick else 40
    unjudged = "" if filled >= asked else f"{filled:,} requests, where the bound is for {asked:,}"
    for name, page in PAGES.items():
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            page(reader, start, end)
            times.append((time.perf_counter() - began) * 1e3)
        last = sorted(times)[-(-95 * rounds // 100) - 1]
        report.add(f"page_{name}_p95", last, "ms, all its queries", must=MUST_MS, better="lower", n=rounds,
                   unjudged=unjudged)  # fmt: skip
