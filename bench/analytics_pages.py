"""What pages of the dashboard ask, and how long each page's queries take together, until the rows are Python's."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from analytics.anomaly.spend import spend_anomalies
from analytics.cost.comparison import compare_costs
from analytics.cost.drill import CostPlace, cost_breakdown, cost_range
from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from analytics.cost.spending_now import spending_now
from analytics.explorer.found import count_matches, find_requests
from analytics.explorer.question import RequestQuestion
from analytics.explorer.search import Search, read_search
from analytics.explorer.single_request import single_request
from analytics.forecast.history import spend_histories
from analytics.gpu.load import engine_load
from analytics.gpu.use import gpu_use
from analytics.latency.over_time import latency_over_time
from analytics.overview import overview
from analytics.planner.recorded import MAX_REQUESTS
from analytics.queries import query
from analytics.query_time import QueryTime
from analytics.routing.board import routing_board
from analytics.scope import Scope
from analytics.series import series
from backends.store.client import StoreClient
from bench.report import Report

MUST_MS: Final = 300.0
_UTC: Final = ZoneInfo("UTC")

Page = Callable[[StoreClient, datetime, datetime], object]


def _overview(length: timedelta, *, is_quick: bool = False) -> Page:
    def ask(reader: StoreClient, start: datetime, end: datetime) -> None:
        scope = Scope(max(end - length, start), end, asked_at=end)
        overview(reader, scope, is_quick=is_quick)
        series(reader, scope, "tenant")
        series(reader, scope, "model")

    return ask


def _tenant_overview(reader: StoreClient, start: datetime, end: datetime) -> None:
    scope = Scope(start, end, tenant="tenant-0001", asked_at=end)
    overview(reader, scope)
    series(reader, scope, "model")


def _cost(*by: str) -> Page:
    def ask(reader: StoreClient, start: datetime, end: datetime) -> None:
        # As pages ask: what unpriced requests used is read from single requests, in the background.
        cost_report(reader, CostQuestion(start, end, by, asked_at=end), stays_with_sums=True)

    return ask


def _costs_page(reader: StoreClient, start: datetime, end: datetime) -> None:
    """Ask what the costs page draws at its top: by tenant, and over time."""
    scope = Scope(start, end, asked_at=end)
    cost_breakdown(reader, CostPlace(), cost_range(scope, _UTC), "tenant", True)
    series(reader, scope, "tenant")


def _costs_of_a_tenant(reader: StoreClient, start: datetime, end: datetime) -> None:
    """Ask it one level down."""
    scope = Scope(start, end, tenant="tenant-0001", asked_at=end)
    cost_breakdown(reader, CostPlace(tenant="tenant-0001"), cost_range(scope, _UTC), "team", True)
    series(reader, scope, "team")


def _costs_compared(reader: StoreClient, start: datetime, end: datetime) -> None:
    """Compare the last week with the one before, by tenant."""
    week = Scope(max(end - timedelta(days=7), start), end, asked_at=end)
    before = Scope(week.start - (week.end - week.start), week.start, asked_at=end)
    within = cost_range(week, _UTC)
    compare_costs(reader, CostPlace(), within, cost_range(before, _UTC).period, "tenant")


def _spending_now(reader: StoreClient, start: datetime, end: datetime) -> None:
    spending_now(reader, QueryTime(end), _UTC)


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


def _requests(length: timedelta, typed: str = "") -> Page:
    def ask(reader: StoreClient, start: datetime, end: datetime) -> None:
        scope = Scope(max(end - length, start), end, asked_at=end)
        question = RequestQuestion.of(scope, read_search(typed), None, "newest", 1)
        page = find_requests(reader, question)
        count_matches(reader, question, page.searched)

    return ask


def _one_request(reader: StoreClient, start: datetime, end: datetime) -> None:
    scope = Scope(end - timedelta(minutes=15), end, tenant="tenant-0001", asked_at=end)
    newest = find_requests(reader, RequestQuestion.of(scope, Search(), None, "newest", 1))
    single_request(reader, newest.requests[0].request_id)


def _latency(length: timedelta) -> Page:
    def ask(reader: StoreClient, start: datetime, end: datetime) -> None:
        latency_over_time(reader, Scope(max(end - length, start), end, asked_at=end))

    return ask


def _routing(length: timedelta, tenant: str | None = None) -> Page:
    def ask(reader: StoreClient, start: datetime, end: datetime) -> None:
        routing_board(reader, Scope(max(end - length, start), end, tenant=tenant, asked_at=end))

    return ask


def _gpu(length: timedelta) -> Page:
    def ask(reader: StoreClient, start: datetime, end: datetime) -> None:
        scope = Scope(max(end - length, start), end, asked_at=end)
        gpu_use(reader, scope)
        engine_load(reader, scope)

    return ask


def _at_odd_moment(page: Page) -> Page:
    """Ask in the middle of a day, hour and minute: the others are asked at midnight, where all sums begin and end."""

    def ask(reader: StoreClient, start: datetime, end: datetime) -> None:
        page(reader, start, end - timedelta(hours=9, minutes=17, seconds=23))

    return ask


PAGES: Final[Mapping[str, Page]] = {
    "overview_1h": _overview(timedelta(hours=1)),
    "overview_1d": _overview(timedelta(days=1)),
    "overview_month": _overview(timedelta(days=31)),
    "tenant_month": _tenant_overview,
    "cost_by_tenant_and_model": _cost("tenant", "model"),
    "cost_by_tenant_and_team": _cost("tenant", "team"),
    "costs_by_tenant": _costs_page,
    "costs_of_a_tenant": _costs_of_a_tenant,
    "costs_compared": _costs_compared,
    "spending_now": _spending_now,
    "requests_1h": _requests(timedelta(hours=1)),
    "requests_month": _requests(timedelta(days=31)),
    "requests_searched_month": _requests(timedelta(days=31), "user-1999"),
    "one_request": _one_request,
    "latency_1h": _latency(timedelta(hours=1)),
    "latency_month": _latency(timedelta(days=31)),
    "routing_1h": _routing(timedelta(hours=1)),
    "routing_24h": _routing(timedelta(days=1)),
    "routing_7d": _routing(timedelta(days=7)),
    "routing_month": _routing(timedelta(days=31)),
    "routing_of_a_tenant_month": _routing(timedelta(days=31), "tenant-0001"),
    "gpu_24h": _gpu(timedelta(days=1)),
    "gpu_7d": _gpu(timedelta(days=7)),
    "gpu_month": _gpu(timedelta(days=31)),
    "spend_history": _spend,
    "anomalies": _anomalies,
    "plan_replay_1h": _replay,
    # Percentiles of a day that is not over are made of rows: pages ask for them in the background.
    "overview_24h_odd": _at_odd_moment(_overview(timedelta(days=1), is_quick=True)),
    "overview_7d_odd": _at_odd_moment(_overview(timedelta(days=7), is_quick=True)),
    "requests_24h_odd": _at_odd_moment(_requests(timedelta(days=1))),
    "latency_24h_odd": _at_odd_moment(_latency(timedelta(days=1))),
    "latency_7d_odd": _at_odd_moment(_latency(timedelta(days=7))),
    "routing_7d_odd": _at_odd_moment(_routing(timedelta(days=7))),
    "gpu_7d_odd": _at_odd_moment(_gpu(timedelta(days=7))),
}


def page_rows(report: Report, reader: StoreClient, start: datetime, end: datetime, filled: int, asked: int) -> None:
    """Ask each page's set several times; `asked` is how many requests the bound is for, `filled` how many there are."""
    rounds = 10 if report.quick else 40
    unjudged = "" if filled >= asked else f"{filled:,} requests, where the bound is for {asked:,}"
    for name, page in PAGES.items():
        page(reader, start, end)  # the first time the store reads its files; a page is asked for again and again
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            page(reader, start, end)
            times.append((time.perf_counter() - began) * 1e3)
        last = sorted(times)[-(-95 * rounds // 100) - 1]
        report.add(f"page_{name}_p95", last, "ms, all its queries", must=MUST_MS, better="lower", n=rounds,
                   unjudged=unjudged)  # fmt: skip
