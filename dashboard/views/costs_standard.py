"""Standard against actual cost: charges to budgets against cost of requests, and charges of standard cost cards
against cost of GPUs."""

from decimal import Decimal
from typing import Any, Final

import streamlit as st

from analytics.cost.drill import CostBreakdown, CostLevel, CostPlace, CostRange, cost_breakdown
from analytics.gpu.variance import CostVariance
from analytics.gpu.variance_report import Standards, last_hours, standards, variance_report
from analytics.query_time import QueryTime
from contracts.pricing.money import usd
from dashboard.money_column import Money
from dashboard.panels import Figure, contained, note, show_figures, show_table
from dashboard.slow_answers import Pending
from dashboard.table import Table
from dashboard.views.costs_words import LEVEL_NAMES, label_of, signed_money
from dashboard.visit import Visit

_HOURS: Final = 24  # the default window of `tollkeeper gpu variance`
_MOST_ROWS: Final = 1_000
_PARTS: Final = ("co_tenancy", "idle", "volume", "cache")


def draw_standard(visit: Visit, place: CostPlace, within: CostRange) -> None:
    """Draw both comparisons; that of GPUs only for viewers of all tenants, because engines serve all of them."""
    with contained():
        _charged(visit, place, within)
    if visit.viewer.tenant is None:
        with contained():
            _gpus(visit)


def _charged(visit: Visit, place: CostPlace, within: CostRange) -> None:
    level: CostLevel = next((each for each in place.open_levels if each not in ("feature", "key")), "model")
    place = CostPlace(place.tenant, place.team, place.project, model=place.model)
    answer = visit.read(cost_breakdown, place, within, level, True)
    total, formats = answer.total, visit.formats
    charged = usd(total.charged_pico_usd)
    difference = None if total.cost_usd is None else total.cost_usd - charged
    show_figures(
        [
            Figure("Cost", formats.money(total.cost_usd), "at the price of each request", "Recorded cost of requests."),
            Figure(
                "Charged to budgets",
                formats.money(charged),
                "at the standard rate",
                "What budgets were charged: the standard cost of each request, at most what was reserved for it. "
                "Nothing is charged if no budget covers a request.",
            ),
            Figure(
                "Cost minus charged",
                signed_money(formats, difference),
                _difference_words(difference),
                "Above 0: cost that no budget was charged, such as requests without a budget or above their "
                "reservation. Below 0: budgets were charged more than requests cost.",
            ),
        ]
    )
    show_table(
        f"Cost and charge by {LEVEL_NAMES[level].lower()}",
        _charged_frame(answer),
        key="costs_charged",
        columns={
            "Cost": Money(6, "Cost of priced requests"),
            "Charged": Money(6, "Charged to budgets"),
            "Difference": Money(6, "Cost minus charged", is_signed=True),
            "Requests": st.column_config.NumberColumn(format="localized"),
            "GPU time": st.column_config.NumberColumn(
                format="%.3g s", help="Seconds of your own GPUs; a dash if a provider answered"
            ),
        },
        formats=visit.formats,
        help="Most expensive first.",
        data=lambda: _charged_export(answer),
        empty="No requests in this range.",
    )


def _difference_words(difference: Decimal | None) -> str:
    """Return a text for the difference of cost and charge, by its sign."""
    if not difference:
        return "budgets were charged the exact cost" if difference is not None else "some cost is unknown"
    return "not charged to any budget" if difference > 0 else "charged above cost"


def _charged_frame(answer: CostBreakdown) -> Table:
    return Table(
        [
            {
                LEVEL_NAMES[answer.level or "model"]: label_of(name),
                "Cost": None if sums.cost_usd is None else float(sums.cost_usd),
                "Charged": float(usd(sums.charged_pico_usd)),
                "Difference": None if sums.cost_usd is None else float(sums.cost_usd - usd(sums.charged_pico_usd)),
                "Requests": sums.requests,
                "GPU time": sums.gpu_ns / 1e9 if sums.gpu_ns else None,
            }
            for name, sums in answer.lines[:_MOST_ROWS]
        ]
    )


def _charged_export(answer: CostBreakdown) -> Table:
    return Table(
        [
            {
                answer.level or "model": name,
                "cost_usd": sums.cost_usd,
                "charged_usd": usd(sums.charged_pico_usd),
                "requests": sums.requests,
                "unpriced_requests": sums.unpriced_requests,
                "gpu_ns": sums.gpu_ns,
            }
            for name, sums in answer.lines
        ]
    )


def _gpus(visit: Visit) -> None:
    asked = QueryTime(visit.now)
    known: Standards = visit.read_control(standards, asked)
    found = visit.read_slow(variance_report, known, asked, _HOURS)
    if isinstance(found, Pending):
        note("The cost of your own GPUs is being computed; it appears shortly.")
        return
    period = last_hours(asked, _HOURS)
    show_table(
        f"Your GPUs: standard cost and actual cost, {visit.formats.currency}",
        Table([_variance_row(one) for one in found]),
        key="costs_variance",
        columns=_variance_columns(),
        formats=visit.formats,
        help="What the fitted card of each model charges, and what its GPUs cost, as `tollkeeper gpu variance` has "
        "it: co-tenancy, idleness, volume and cache sum to the difference.",
        data=lambda: Table([_variance_export(one) for one in found]),
        empty="No self-hosted model has a fitted standard cost card; `tollkeeper gpu fit MODEL --publish` creates one.",
    )
    said = f"The last {_HOURS} whole hours: {visit.formats.period(period.start, period.end)}."
    if known.unfit:
        said += f" Cards set by an operator have no variance analysis: {', '.join(known.unfit)}."
    note(said)


def _variance_row(one: CostVariance) -> dict[str, object]:
    return {
        "Model": one.model,
        "Standard": float(usd(one.standard_pico_usd)),
        "Actual": float(usd(one.actual_pico_usd)),
        "Actual minus standard": float(usd(one.total)),
        **{name.replace("_", "-").capitalize(): float(usd(getattr(one, name))) for name in _PARTS},
    }


def _variance_export(one: CostVariance) -> dict[str, object]:
    return {
        "model": one.model,
        "standard_usd": usd(one.standard_pico_usd),
        "actual_usd": usd(one.actual_pico_usd),
        "total_usd": usd(one.total),
        **{f"{name}_usd": usd(getattr(one, name)) for name in _PARTS},
    }


def _variance_columns() -> dict[str, Any]:
    return {
        "Standard": Money(4, "By the fitted card"),
        "Actual": Money(4, "Cost of the GPUs, idle time included"),
        "Actual minus standard": Money(4, "Above 0: the GPUs cost more than was charged", is_signed=True),
        "Co-tenancy": Money(4, "Requests took more or less GPU time than the card's rates imply", is_signed=True),
        "Idle": Money(4, "Idle and wasted time cost more than planned, or less", is_signed=True),
        "Volume": Money(4, "Planned idle time was spread over fewer tokens than planned, or over more", is_signed=True),
        "Cache": Money(4, "More or less input came from a cache than planned", is_signed=True),
    }
