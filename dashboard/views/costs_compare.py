"""Comparison of two periods: causes of the change in cost, and the change of each part."""

from dataclasses import replace
from datetime import timedelta
from itertools import accumulate
from typing import Any, Final

import streamlit as st

from analytics.anomaly.drivers import DRIVERS, Change, Driver
from analytics.cost.comparison import CostComparison, compare_costs, cost_drivers
from analytics.cost.drill import NOT_IN_SUMS, CostLevel, CostPlace, CostRange, cost_range
from analytics.scope import Period
from contracts.pricing.money import usd
from dashboard import charts
from dashboard.formats import Formats, as_float
from dashboard.money_column import Money
from dashboard.panels import Figure, Tone, note, show_chart, show_figures, show_table
from dashboard.plot import Plot
from dashboard.slow_answers import Pending
from dashboard.table import Table
from dashboard.theme import STATUS
from dashboard.views.costs_words import LEVEL_NAMES, label_of, signed_money, signed_percent
from dashboard.visit import Visit

_KEEP_SECONDS: Final = 60
_MOST_ROWS: Final = 1_000
_DRIVER_WORDS: Final[dict[Driver, tuple[str, str]]] = {
    "volume": ("Volume", "more or fewer requests"),
    "mix": ("Mix", "other models, longer or shorter"),
    "cache": ("Cache", "more or less input from caches"),
    "price": ("Price", "another price for the same"),
}


def draw_comparison(visit: Visit, place: CostPlace, within: CostRange, level: CostLevel | None) -> None:
    """Draw the chosen comparison; by default with the period of the same length before."""
    earlier = visit.before or replace(visit.filters, compare="previous").before(visit.scope)
    assert earlier is not None  # a comparison was just chosen
    before = cost_range(earlier, visit.viewer.zone).period
    answer: CostComparison | Pending
    if not place.is_in_sums or level in NOT_IN_SUMS:
        answer = visit.read_slow(compare_costs, place, within, before, level, keep_seconds=_KEEP_SECONDS)
    else:
        answer = visit.read(compare_costs, place, within, before, level)
    if isinstance(answer, Pending):
        note("Both periods are computed from single requests; this takes a few seconds.")
        return
    _figures(visit, answer)
    drivers = visit.read_slow(cost_drivers, place, within, before, keep_seconds=_KEEP_SECONDS)
    if isinstance(drivers, Pending):
        note("The causes are being computed.")
    else:
        _drivers(visit, answer, drivers)
    if level is not None:
        _table(visit.formats, answer, level)


def _figures(visit: Visit, answer: CostComparison) -> None:
    formats, total = visit.formats, answer.total
    change = total.change_usd
    tone: Tone | None = None if not change else "warn" if change > 0 else "good"
    tokens = [sums.input_tokens + sums.output_tokens for sums in (total.before, total.after)]
    show_figures(
        [
            Figure(
                "Before",
                formats.money(total.before.cost_usd),
                _days(visit, answer.before),
                f"{formats.period(answer.before.start, answer.before.end)}. Choose another period in the bar above.",
            ),
            Figure(
                "Now",
                formats.money(total.after.cost_usd),
                _days(visit, answer.after),
                f"{formats.period(answer.after.start, answer.after.end)}, the range that is shown.",
            ),
            Figure(
                "Change",
                signed_money(formats, change),
                signed_percent(total.change_share),
                "Difference of priced requests. Unknown if one of the two has no price.",
                tone,
            ),
            Figure(
                "Requests",
                formats.count(total.after.requests),
                f"{formats.count(total.before.requests)} before",
                "All requests recorded, refused ones included.",
            ),
            Figure(
                "Tokens",
                formats.count(tokens[1]),
                f"{formats.count(tokens[0])} before",
                "Input and output of the requests whose usage is known.",
            ),
        ]
    )


def _days(visit: Visit, period: Period) -> str:
    first, last = visit.formats.day(period.start), visit.formats.day(period.end - timedelta(seconds=1))
    return first if first == last else f"{first} to {last}"


def _drivers(visit: Visit, answer: CostComparison, drivers: Change) -> None:
    names = ["Before", *(_DRIVER_WORDS[name][0] for name in DRIVERS), "Now"]
    parts = [drivers.parts[name] for name in DRIVERS]
    first = answer.total.before.priced_pico_usd
    # Read slightly later than the figures above: the last bar is the sum of these parts.
    amounts = [usd(first), *map(usd, parts), usd(first + drivers.total)]
    words = [visit.formats.money(amounts[0])]
    words += [signed_money(visit.formats, amount) for amount in amounts[1:-1]]
    words.append(visit.formats.money(amounts[-1]))
    figure = Plot().add_waterfall(
        x=names,
        y=[visit.formats.amount(amount) for amount in amounts],
        measure=["absolute", *["relative"] * len(parts), "total"],
        text=words,
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{x}: %{text}<extra></extra>",
        connector={"line": {"width": 1, "color": STATUS["neutral"]}},
        increasing={"marker": {"color": STATUS["warn"]}},
        decreasing={"marker": {"color": STATUS["good"]}},
        totals={"marker": {"color": STATUS["neutral"]}},
    )
    before, after = visit.formats.money_signs
    charts.style(figure, prefix=before, suffix=after, height=260)
    heights = [visit.formats.amount(usd(height)) or 0.0 for height in accumulate(parts, initial=first)]
    charts.money_axis(figure, min(heights), max(heights), visit.formats)
    figure.update_layout(hovermode="closest", margin={"l": 0, "r": 4, "t": 24, "b": 0})
    figure.update_xaxes(type="category")
    meanings = "; ".join(f"{word.lower()}: {meaning}" for word, meaning in _DRIVER_WORDS.values())
    show_chart(
        "Causes of the change",
        figure,
        key="costs_drivers",
        unit=visit.formats.currency,
        help=f"Exact decomposition of the change: {meanings}. Requests change first, then models and lengths, then "
        "caching, then the price; each part is the effect of its step.",
        data=lambda: Table({"part": names, "usd": amounts}),
    )


def _table(formats: Formats, answer: CostComparison, level: CostLevel) -> None:
    frame = Table(
        [
            {
                LEVEL_NAMES[level]: label_of(line.label),
                "Before": as_float(line.before.cost_usd),
                "Now": as_float(line.after.cost_usd),
                "Change": as_float(line.change_usd),
                "Change %": None if line.change_share is None else line.change_share,
                "Requests before": line.before.requests,
                "Requests now": line.after.requests,
                "Unpriced now": line.after.unpriced_requests,
            }
            for line in answer.lines[:_MOST_ROWS]
        ]
    )
    if len(frame) and not any(frame["Unpriced now"]):
        frame = frame.without("Unpriced now")
    show_table(
        f"Change by {LEVEL_NAMES[level].lower()}",
        frame,
        key="costs_changes",
        columns=_columns(),
        formats=formats,
        help="Largest change first. New rows have no percentage.",
        data=lambda: _export(answer, level),
        empty="No requests in either period.",
    )
    if len(answer.lines) > _MOST_ROWS:
        st.caption(f"The {_MOST_ROWS:,} largest changes of {len(answer.lines):,} are shown; the export has all.")


def _export(answer: CostComparison, level: CostLevel) -> Table:
    return Table(
        [
            {
                level: line.label,
                "before_usd": line.before.cost_usd,
                "now_usd": line.after.cost_usd,
                "change_usd": line.change_usd,
                "requests_before": line.before.requests,
                "requests_now": line.after.requests,
                "unpriced_before": line.before.unpriced_requests,
                "unpriced_now": line.after.unpriced_requests,
            }
            for line in answer.lines
        ]
    )


def _columns() -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "Before": Money(4, "In the earlier period"),
        "Now": Money(4, "In the range that is shown"),
        "Change": Money(4, "Now minus before", is_signed=True),
        "Change %": number("Change %", format="percent", help="Share of what it was before"),
        "Requests before": number(format="localized", help="All requests, including refused ones"),
        "Requests now": number(format="localized", help="All requests, including refused ones"),
        "Unpriced now": number(
            format="localized", help="Requests without a price: not included in any cost. Unknown is not zero"
        ),
    }
