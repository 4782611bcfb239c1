"""The overview's first row: the current state. Each card shows one figure and links to the page with the details."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from analytics.alerts.raised import open_by_severity
from analytics.cost.spending_now import spending_now
from analytics.overview import Overview
from analytics.query_time import QueryTime
from analytics.slo.objective_states import objective_list, objective_states
from dashboard import address
from dashboard.forecasts import spend_outlook
from dashboard.panels import Tone, contained
from dashboard.slow_answers import Pending
from dashboard.theme import STATUS
from dashboard.visit import Visit

_SPENDING_SECONDS: Final = 15
_PROMISES_SECONDS: Final = 15
_FORECAST_SECONDS: Final = 600
_WAITING: Final = "…"


def draw_now(visit: Visit, answer: Overview) -> None:
    """Draw the cards: spending today, this month with its forecast, speed, SLOs, alerts."""
    zone = visit.formats.zone_name
    today, month, speed, promised, alerts = st.columns([1.1, 1.2, 1.1, 1, 1.1], gap="small")
    with _card(
        today,
        "costs",
        "Spend today",
        f"Spending since midnight in {zone}, independent of the range above; yesterday is the whole day. Requests "
        "without a price are excluded from all cost totals.",
        {"range": "24h"},
    ):
        _today(visit)
    with _card(
        month,
        "costs",
        "Month to date",
        f"Spent since the first of the month in {zone}, as `tollkeeper cost report` has it; and the forecast "
        "for the month: median and 80 % interval. The forecast counts days in UTC, as "
        "`tollkeeper forecast` does.",
        {"range": "month"},
    ):
        _month(visit)
    with _card(
        speed,
        "latency",
        "Speed",
        "Output tokens per second, mean over the selected range; time to first token (TTFT) and "
        "inter-token latency, both as 95th percentiles.",
    ):
        _speed(visit, answer)
    with _card(
        promised,
        "latency",
        "SLOs",
        "Objectives whose error budget is not used up and does not burn, as `tollkeeper slos report` has them.",
    ):
        _promises(visit)
    with _card(
        alerts,
        "budgets",
        "Open alerts",
        "Open alerts. Page: needs attention now. Ticket: during working hours.",
        {"tab": "alerts"},
    ):
        _alerts(visit)


@contextmanager
def _card(
    column: DeltaGenerator, path: str, title: str, help: str, parameters: Mapping[str, str | None] | None = None
) -> Iterator[None]:
    with column.container(border=True, gap="xxsmall"):
        address.page_link(path, f"{title} :gray[:material/help:]", parameters, help=help)
        with contained():
            yield


def _say(value: str, beside: str, tone: Tone | None = None, *, unit: str = "") -> None:
    """Draw a value and the text below it; the dot's colour repeats what the text states."""
    small = f' <span style="font-size:0.95rem;font-weight:400">{escape(unit)}</span>' if unit else ""
    dot = "" if tone is None else f'<span aria-hidden="true" style="color:{STATUS[tone]}">\u25cf</span> '
    # Two lines are reserved for the text, so that all cards have the same height.
    st.markdown(
        f'<div style="font-size:1.6rem;font-weight:600;line-height:1.3;white-space:nowrap">{escape(value)}{small}</div>'
        '<div style="font-size:0.86rem;line-height:1.4;min-height:2.8em;padding-bottom:0.9rem;opacity:0.8">'
        f"{dot}{escape(beside)}</div>",
        unsafe_allow_html=True,
    )


def _today(visit: Visit) -> None:
    scope, formats = visit.scope, visit.formats
    found = visit.read_slow(
        spending_now,
        QueryTime(visit.now),
        visit.viewer.zone,
        scope.tenant,
        scope.team,
        scope.project,
        scope.model,
        keep_seconds=_SPENDING_SECONDS,
    )
    if isinstance(found, Pending):
        _say(_WAITING, "loading")
        return
    unpriced = found.today.unpriced_requests
    beside = f"{formats.money(found.yesterday.cost_usd)} yesterday"
    if unpriced:
        beside += f", {formats.count(unpriced)} unpriced"
    _say(formats.money(found.today.cost_usd), beside, "warn" if unpriced else None)


def _month(visit: Visit) -> None:
    scope, formats = visit.scope, visit.formats
    asked = QueryTime(visit.now)
    spent = visit.read_slow(
        spending_now,
        asked,
        visit.viewer.zone,
        scope.tenant,
        scope.team,
        scope.project,
        scope.model,
        keep_seconds=_SPENDING_SECONDS,
    )
    if isinstance(spent, Pending):
        _say(_WAITING, "loading")
        return
    _say(formats.money(spent.month_to_date.cost_usd), _forecast(visit, asked))


def _forecast(visit: Visit, asked: QueryTime) -> str:
    scope, formats = visit.scope, visit.formats
    if scope.model is not None or scope.project is not None:
        return "forecasts exist for tenants and teams only"
    found = visit.read_beside(spend_outlook, asked, scope.tenant, scope.team, keep_seconds=_FORECAST_SECONDS)
    if isinstance(found, Pending):
        return "forecast is being computed"
    if found is None:
        return "nothing to forecast from"
    month = found.month
    if month.expected_usd is None:
        return f"no forecast: {found.reason}"
    expected = f"forecast {formats.money(month.expected_usd)}"
    if month.low_usd is None or month.high_usd is None:
        return f"{expected} at this pace; {found.reason}"
    return f"{expected} ({formats.money(month.low_usd)} \u2013 {formats.money(month.high_usd)})"


def _speed(visit: Visit, answer: Overview) -> None:
    formats = visit.formats
    ttft, gap = answer.latency.ttft, answer.latency.gap
    rate = answer.output_tokens_per_second
    ttft_words = f"TTFT p95 {formats.duration(ttft.p95_ns if ttft else None)}"
    words = f"{ttft_words}, inter-token p95 {formats.duration(gap.p95_ns if gap else None)}"
    _say(
        "—" if rate is None else f"{rate:,.3g}" if rate < 1_000 else f"{rate:,.0f}",
        words if answer.has_latency else "latency is loading",
        unit="tokens/s",
    )


def _promises(visit: Visit) -> None:
    if visit.viewer.team is not None:
        _say("—", "by tenant, not by team")
        return
    promised = visit.read_control(objective_list, visit.scope.tenant)
    total = len(promised.objectives)
    if not total:
        _say("none", "create one with `tollkeeper slos create`")
        return
    found = visit.read_slow(objective_states, promised, QueryTime(visit.now), keep_seconds=_PROMISES_SECONDS)
    if isinstance(found, Pending):
        _say(_WAITING, "loading")
        return
    names = [standing.status for standing in found]
    broken, burning, silent = (names.count(name) for name in ("broken", "burning", "no_requests"))
    parts = [f"{broken} missed" if broken else "", f"{burning} burning" if burning else ""]
    parts += [f"{silent} without requests" if silent else ""]
    tone: Tone = "bad" if broken else "warn" if burning else "good"
    _say(
        f"{names.count('met')} of {total}",
        ", ".join(part for part in parts if part) or "no error budget is burning",
        tone,
        unit="met",
    )


def _alerts(visit: Visit) -> None:
    found = visit.read_control(open_by_severity, visit.scope.tenant, visit.scope.team)
    pages, tickets = found.get("page", 0), found.get("ticket", 0)
    if not pages and not tickets:
        _say("0", "no alert rule matches", "good")
        return
    _say(
        str(pages + tickets),
        f"{visit.formats.counted(pages, 'page')}, {visit.formats.counted(tickets, 'ticket')}",
        "bad" if pages else "warn",
    )
