"""The overview's budgets: those closest to their amount, as bars with a forecast for the period."""

from html import escape
from typing import Final

import streamlit as st

from analytics.budget_bars import BudgetBar, budget_bars
from analytics.query_time import QueryTime
from dashboard import address
from dashboard.panels import panel
from dashboard.theme import STATUS
from dashboard.views.budget_words import STATE_TONES, STATE_WORDS, amount, whom
from dashboard.visit import Visit

_SHOWN: Final = 6
_FULL: Final = 100.0


def draw_budget_bars(visit: Visit) -> None:
    """Draw the most used budgets of the chosen tenant or team, or of all tenants."""
    with panel(
        "Budgets",
        unit="spent in the current period",
        help="Charges by gateways, a few seconds old. The mark is the forecast at the mean rate since the period's "
        "start. A hard budget refuses requests that would exceed it; a soft one only notifies.",
    ):
        bars = visit.read_control(budget_bars, QueryTime(visit.now), visit.scope.tenant, visit.scope.team)
        if not bars:
            st.caption("No budgets: spending is not limited.")
        else:
            rows = "".join(_row(visit, bar) for bar in bars[:_SHOWN])
            st.markdown(
                f'<div style="font-size:0.92rem;padding-bottom:0.6rem">{rows}</div>',
                unsafe_allow_html=True,
            )
        more = len(bars) - _SHOWN
        address.page_link("budgets", f"All budgets ({more} more)" if more > 0 else "Budgets & alerts")


def _row(visit: Visit, bar: BudgetBar) -> str:
    formats, spec = visit.formats, bar.spec
    color = STATUS[STATE_TONES[bar.state] or "neutral"]
    used = min(bar.used_share * _FULL, _FULL)
    mark = ""
    if bar.projected_share is not None:
        at = min(bar.projected_share * _FULL, _FULL)
        mark = (
            f'<span style="position:absolute;left:calc({at:.2f}% - 1px);top:-2px;bottom:-2px;width:2px;'
            f'background:currentColor;opacity:0.6" title="{escape(amount(formats, spec, bar.projected))} at this pace">'
            "</span>"
        )
    said = (
        f"{amount(formats, spec, bar.used)} of {amount(formats, spec, spec.amount)} "
        f"({formats.percent(bar.used_share)}), {STATE_WORDS[bar.state]}"
    )
    return (  # a narrow window gives the bar and the words a line each
        '<div style="display:flex;flex-wrap:wrap;gap:0.3rem 0.9rem;align-items:center;margin-bottom:0.55rem">'
        f'<span style="flex:0 0 9rem;overflow-wrap:anywhere">{escape(whom(bar))}<br>'
        f'<span style="opacity:0.7;font-size:0.82rem">{escape(spec.period)}, {"hard" if spec.is_hard else "soft"}'
        "</span></span>"
        '<span role="img" style="position:relative;flex:1 1 14rem;height:10px;border-radius:5px;'
        'background:color-mix(in srgb, currentColor 12%, transparent)" '
        f'aria-label="{escape(said)}"><span style="position:absolute;left:0;top:0;bottom:0;border-radius:5px;'
        f'width:{used:.2f}%;background:{color}"></span>{mark}</span>'
        f'<span style="flex:0 1 21rem;text-align:right">{escape(said)}</span></div>'
    )
