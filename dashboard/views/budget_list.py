"""A table of budgets with their state; the selected one in detail, with forms to change or delete it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final

import streamlit as st

from analytics.budget_bars import BudgetBar, budget_bars
from analytics.query_time import QueryTime
from backends.http_client.control_plane import path_segment
from contracts.access.person import person_of
from contracts.rules.rule_words import exact_text
from dashboard import address
from dashboard.formats import UNKNOWN
from dashboard.panels import Figure, contained, note, panel, show_figures, show_table
from dashboard.states import escaped
from dashboard.table import Table
from dashboard.views.budget_forms import change_form, create_form, delete_button
from dashboard.views.budget_words import PERIOD_WORDS, STATE_TONES, STATE_WORDS, allowed, amount, whom
from dashboard.visit import Visit

_TABLE: Final = "budgets_table"
_EVENT_COLUMNS: Final = ("Time", "Threshold", "Subject", "Spent", "Budget", "Webhook")


def draw_budgets(visit: Visit) -> None:
    """Draw all budgets of the chosen tenant or team, the selected one's details, and the form to create one."""
    scope = visit.scope
    bars: Sequence[BudgetBar] = visit.read_control(budget_bars, QueryTime(visit.now), scope.tenant, scope.team)
    _figures(bars)
    show_table(
        "Budgets",
        budgets_frame(visit, bars),
        key=_TABLE,
        columns=_columns(),
        help="What gateways have charged in the current period, a few seconds old. Select a row to see, change or "
        "delete a budget.",
        data=lambda: export_frame(bars),
        on_select=partial(_open_row, [bar.spec.id for bar in bars]),
        empty="No budgets. A budget limits the money or GPU time used in a day, week or month.",
    )
    chosen = address.get("budget")
    bar = next((bar for bar in bars if bar.spec.id == chosen), None)
    if chosen is not None and bar is None:
        note(f"There is no budget {escaped(chosen)} here: it was deleted, or is another tenant's.")
    elif bar is not None:
        with contained():
            _detail(visit, bar)
    if visit.viewer.can_write:
        with contained():
            create_form(visit)


def budgets_frame(visit: Visit, bars: Sequence[BudgetBar]) -> Table:
    """Return the table of budgets."""
    formats = visit.formats
    return Table(
        [
            {
                "Subject": whom(bar),
                "Amount": f"{amount(formats, bar.spec, bar.spec.amount)} {PERIOD_WORDS[bar.spec.period]}",
                "Used": bar.used_share,
                "Spent": amount(formats, bar.spec, bar.used),
                "Reserved": amount(formats, bar.spec, bar.reserved),
                "Forecast": amount(formats, bar.spec, bar.projected),
                "Until": None if bar.period_end is None else formats.moment(bar.period_end),
                "Kind": "hard" if bar.spec.is_hard else "soft",
                "State": STATE_WORDS[bar.state],
            }
            for bar in bars
        ]
    )


def export_frame(bars: Sequence[BudgetBar]) -> Table:
    """Return budgets for export, with exact amounts, as `tollkeeper budgets show` prints them."""
    return Table(
        [
            {
                "id": bar.spec.id,
                "tenant": bar.spec.scope.tenant,
                "level": bar.spec.scope.level,
                "subject": bar.subject,
                "model": bar.spec.scope.model,
                "period": bar.spec.period,
                "unit": "usd" if bar.spec.metric == "pico_usd" else "gpu_milliseconds",
                "amount": exact_text(bar.spec.metric, bar.spec.amount),
                "spent": exact_text(bar.spec.metric, bar.used),
                "reserved": exact_text(bar.spec.metric, bar.reserved),
                "projected": None if bar.projected is None else exact_text(bar.spec.metric, bar.projected),
                "state": bar.state,
            }
            for bar in bars
        ]
    )


def _figures(bars: Sequence[BudgetBar]) -> None:
    counts = {state: sum(bar.state == state for bar in bars) for state in STATE_WORDS}
    show_figures(
        [
            Figure(
                "Budgets",
                str(len(bars)),
                "active",
                "Budgets by what they count; a budget with a counter per subject shows up to five.",
            ),
            Figure(
                "Used up",
                str(counts["used_up"]),
                "nothing left" if counts["used_up"] else "none",
                "The amount is spent. A hard budget refuses further requests with 429 until its period ends.",
                STATE_TONES["used_up"] if counts["used_up"] else None,
            ),
            Figure(
                "Close to their limit",
                str(counts["near"]),
                "80 % or more, or will be exceeded" if counts["near"] else "none",
                "80 % of the amount or more is spent, or the forecast exceeds it by the end of the period.",
                STATE_TONES["near"] if counts["near"] else None,
            ),
            Figure(
                "Within their limit",
                str(counts["fine"]),
                "below 80 %",
                "Less than 80 % of the amount is spent, and the forecast stays within it.",
            ),
        ]
    )


def _detail(visit: Visit, bar: BudgetBar) -> None:
    formats, spec = visit.formats, bar.spec
    path = f"/v1/tenants/{path_segment(spec.scope.tenant)}/budgets/{path_segment(spec.id)}"
    with panel(whom(bar), unit=f"{allowed(formats, spec)}; {spec.id}"):
        shown = visit.control.get(path)
        state = shown["state"]
        show_figures(
            [
                Figure("Spent", amount(formats, spec, bar.used), formats.percent(bar.used_share), "In this period."),
                Figure(
                    "Reserved",
                    amount(formats, spec, bar.reserved),
                    "for requests in progress",
                    "In addition to what is spent.",
                ),
                Figure(
                    "Remaining",
                    amount(formats, spec, max(spec.amount - bar.used - bar.reserved, 0)),
                    _until(visit, bar),
                    "Neither spent nor reserved.",
                ),
                Figure(
                    "Forecast",
                    amount(formats, spec, bar.projected),
                    _pace_words(visit, bar),
                    "Forecast for the period at the mean rate since its start, or since the budget's "
                    "creation; shown after a tenth of the period.",
                    STATE_TONES[bar.state],
                ),
            ]
        )
        if state is None:
            note("Inactive: the budget has not started, or it has ended.")
        if shown["proposal"]:
            asked = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown["proposal"].items())
            note(f"{person_of(shown['proposed_by'])} proposed: {asked}. Another person must save the same change.")
        _events(visit, shown["events"])
        if visit.viewer.can_write:
            with st.container(horizontal=True, vertical_alignment="center"):
                change_form(visit, path, shown)
                delete_button(visit, path, whom(bar))
                st.button("Close", on_click=address.change, args=({"budget": None},), key="budget_close")


def _pace_words(visit: Visit, bar: BudgetBar) -> str:
    if bar.state == "used_up":
        return "used up"
    if bar.exhausted_at is not None:
        return f"used up on {visit.formats.moment(bar.exhausted_at)}"
    if bar.projected is None:
        return "too early to tell" if bar.period_end is not None else "without end"
    return "lasts the period"


def _until(visit: Visit, bar: BudgetBar) -> str:
    return "without end" if bar.period_end is None else f"until {visit.formats.moment(bar.period_end)}"


def _events(visit: Visit, events: Sequence[Mapping[str, Any]]) -> None:
    if not events:
        note("No threshold passed yet.")
        return
    rows = [
        {
            "Time": visit.formats.moment(datetime.fromisoformat(event["at"])),
            "Threshold": f"{event['threshold_percent']} %",
            "Subject": event["subject"] or "the tenant",
            "Spent": _written(visit, event, "spent"),
            "Budget": _written(visit, event, "amount"),
            "Webhook": _told(event),
        }
        for event in sorted(events, key=lambda event: (event["at"], event["threshold_percent"]), reverse=True)
    ]
    st.markdown("**Thresholds passed**, latest first")
    frame = Table(rows, columns=list(_EVENT_COLUMNS))
    st.dataframe(frame.as_arrow(), hide_index=True, placeholder=UNKNOWN, lazy=False, key="budget_events")


def _written(visit: Visit, event: Mapping[str, Any], name: str) -> str:
    value = Decimal(event[name])
    return visit.formats.money(value) if event["unit"] == "usd" else f"{visit.formats.duration(int(value * 10**6))} GPU"


def _told(event: Mapping[str, Any]) -> str:
    if event["delivered_at"]:
        return "notified"
    return f"{event['attempts']} attempts: {event['last_error']}" if event["last_error"] else "—"


def _columns() -> dict[str, Any]:
    return {
        "Subject": st.column_config.TextColumn(help="What the budget covers: tenant / team, key or user / model"),
        "Amount": st.column_config.TextColumn(help="Amount and calendar period, in the tenant's time zone"),
        "Used": st.column_config.ProgressColumn(
            format="percent",
            min_value=0,
            max_value=1,
            color="gray",  # one colour for all rows: by default the bar of a used-up budget would be green
            help="Share of the amount that is spent",
        ),
        "Spent": st.column_config.TextColumn(help="Charged in this period, at the prices of price cards"),
        "Reserved": st.column_config.TextColumn(help="Reserved by requests in progress, in addition to what is spent"),
        "Forecast": st.column_config.TextColumn(
            help="Forecast for the period at the mean rate since its start; shown after a tenth of the period"
        ),
        "Until": st.column_config.TextColumn(help="End of the period"),
        "Kind": st.column_config.TextColumn(help="Hard: never overspent. Soft: only notifies"),
    }


def _open_row(ids: Sequence[str]) -> None:
    rows = st.session_state[_TABLE].selection.rows
    address.change({"budget": ids[rows[0]] if rows and rows[0] < len(ids) else None})
