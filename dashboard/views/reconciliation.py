"""The reconciliation page: providers' bills against recorded usage, and the cause of every difference."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Final

import streamlit as st

from analytics.reconciliation.report import (
    CAUSE_WORDS,
    KeptDifference,
    ReconciliationBoard,
    reconciliation_board,
)
from contracts.access.person import person_of
from contracts.control import ProviderBill, Reconciliation, Role
from contracts.metering.usage import KINDS
from contracts.pricing.money import usd
from dashboard import address
from dashboard.filters import written
from dashboard.money_column import Money
from dashboard.page import Page
from dashboard.panels import Figure, note, show_figures, show_table
from dashboard.states import escaped
from dashboard.table import Table
from dashboard.visit import Visit

_MOST_ROWS: Final = 1_000
_text = st.column_config.TextColumn
_moment = st.column_config.DatetimeColumn(format="D MMM YYYY HH:mm")
_count = st.column_config.NumberColumn(format="localized")
_TITLES: Final[Mapping[str, str]] = {leaf: kind.title for leaf, kind in KINDS.items()}


def draw(visit: Visit) -> None:
    """Draw the compared months, and the selected month's differences."""
    if visit.viewer.access.is_bound:
        note("Providers' bills cover the whole installation. Ask an owner, admin or finance user.")
        return
    provider, month = address.get("provider") or "", address.get("bill_month") or ""
    board: ReconciliationBoard = visit.read_control(reconciliation_board, provider, month)
    chosen = next((row for row in board.reconciliations if (row.provider, row.month) == (provider, month)), None)
    if chosen is None and board.reconciliations:
        chosen = board.reconciliations[0]
        board = visit.read_control(reconciliation_board, chosen.provider, chosen.month)
    if chosen is not None:
        _figures(visit, chosen)
        _causes(visit, chosen, board)
    show_table(
        "Compared months",
        months_frame(visit, board.reconciliations),
        key="reconciliation_months",
        columns={
            "Billed": Money(2),
            "Recorded": Money(2),
            "Difference": Money(2, "Billed minus recorded", is_signed=True),
            "Unexplained": Money(2, "Differences without a known cause; absolute values, summed"),
            "Compared": _moment,
        },
        formats=visit.formats,
        help="Months with an imported bill. Select a row to see its differences.",
        on_select=partial(_open_month, [(row.provider, row.month) for row in board.reconciliations]),
        empty="No bills yet. Import one with `tollkeeper reconcile import FILE`.",
    )
    if board.bills:
        show_table(
            "Imported bills",
            bills_frame(visit, board.bills),
            key="reconciliation_bills",
            columns={"Billed": Money(2), "Imported": _moment, "Lines": _count, "Skipped": _count, "File": _text()},
            formats=visit.formats,
            help="Imported files. Skipped: lines of other services.",
        )
    note("Bills are compared again within five minutes of an import, and every six hours for two months.")


def _figures(visit: Visit, row: Reconciliation) -> None:
    money = visit.formats.money
    difference = row.billed_usd - row.recorded_usd
    show_figures(
        [
            Figure("Billed", money(row.billed_usd), f"{row.provider}, {row.month}", "Total of the provider's bill."),
            Figure(
                "Recorded",
                money(row.recorded_usd),
                "by the gateway",
                "Recorded cost of requests to this provider on the same days (UTC).",
            ),
            Figure("Difference", money(difference), "billed minus recorded", "The causes below sum to it exactly."),
            Figure(
                "Unexplained",
                money(row.unknown_usd),
                "without a known cause",
                "Sum of the absolute values of differences without a known cause.",
                "bad" if row.unknown_usd else "good",
            ),
        ]
    )


def _causes(visit: Visit, row: Reconciliation, board: ReconciliationBoard) -> None:
    counts: dict[str, int] = {}
    for one in board.differences:
        counts[one.cause] = counts.get(one.cause, 0) + 1
    names = [name for name in CAUSE_WORDS if name in row.causes]
    show_table(
        f"Causes, {row.provider} {row.month}",
        Table(
            [
                {
                    "Cause": CAUSE_WORDS[name][0],
                    "Amount": float(row.causes[name]),
                    "Differences": counts.get(name, 0),
                    "Meaning": CAUSE_WORDS[name][1],
                }
                for name in names
            ]
        ),
        key=f"reconciliation_causes_{row.provider}_{row.month}",
        columns={
            "Amount": Money(4, "Above 0: the bill is higher than recorded", is_signed=True),
            "Differences": _count,
            "Meaning": _text(width="large"),
        },
        formats=visit.formats,
        help="Every difference has one cause. Select a row to see its days, models and targets.",
        on_select=partial(_open_cause, f"reconciliation_causes_{row.provider}_{row.month}", row, names),
        empty="The bill matches recorded usage exactly.",
    )
    cause = address.get("cause")
    if cause is not None and cause in CAUSE_WORDS:
        found = sorted((one for one in board.differences if one.cause == cause), key=lambda one: -abs(one.amount))
        _differences(visit, cause, found)


def _differences(visit: Visit, cause: str, found: Sequence[KeptDifference]) -> None:
    shown, key = found[:_MOST_ROWS], f"reconciliation_{cause}"
    show_table(
        CAUSE_WORDS[cause][0],  # type: ignore[index]  # one of its names
        differences_frame(shown),
        key=key,
        columns={
            "Amount": Money(6, "Above 0: the bill is higher than recorded", is_signed=True),
            "Tokens": _count,
        },
        formats=visit.formats,
        help="By day (UTC), model, target, service tier and kind of tokens. Select a row to find its requests.",
        data=lambda: differences_frame(found),
        on_select="rerun",
        empty="No differences with this cause.",
    )
    if len(found) > len(shown):
        note(f"The {_MOST_ROWS:,} largest of {len(found):,} are shown; the export has all.")
    state = st.session_state.get(key)
    rows = state.selection.rows if state is not None else []
    if rows and rows[0] < len(shown):
        _link(shown[rows[0]])
    st.button("Close", on_click=address.change, args=({"cause": None},), key="close_cause")


def _link(one: KeptDifference) -> None:
    """Draw a link to the requests of a difference: those of its day, model and target."""
    start = datetime.combine(date.fromisoformat(one.day), datetime.min.time(), UTC)
    words = [f"replica:{one.target}"] if one.target and one.cause != "not_through_us" else []
    address.page_link(
        "requests",
        f"Requests of {one.day} to {escaped(one.asked_as or one.model)}",
        {
            "range": None,
            "from": written(start),
            "to": written(start + timedelta(1)),
            "model": one.asked_as or None,
            "q": " ".join(words) or None,
            "provider": None,
            "cause": None,
            "bill_month": None,
        },
        icon=":material/list_alt:",
    )


def months_frame(visit: Visit, rows: Sequence[Reconciliation]) -> Table:
    """Return the table of months."""
    return Table(
        [
            {
                "Month": row.month,
                "Provider": row.provider,
                "Billed": float(row.billed_usd),
                "Recorded": float(row.recorded_usd),
                "Difference": float(row.billed_usd - row.recorded_usd),
                "Unexplained": float(row.unknown_usd),
                "Compared": _local(visit, row.computed_at),
            }
            for row in rows
        ]
    )


def bills_frame(visit: Visit, rows: Sequence[ProviderBill]) -> Table:
    """Return the table of imported bills."""
    return Table(
        [
            {
                "Imported": _local(visit, row.created_at),
                "Provider": row.provider,
                "Month": row.month,
                "Format": row.format,
                "File": row.name or None,
                "Lines": row.line_count,
                "Skipped": row.skipped,
                "Billed": float(row.billed_usd),
                "Currency": row.currency or None,
                "By": person_of(row.author),
            }
            for row in rows
        ]
    )


def differences_frame(found: Sequence[KeptDifference]) -> Table:
    """Return the table of differences."""
    return Table(
        [
            {
                "Day": one.day,
                "Model": one.model or None,
                "Target": one.target or None,
                "Tier": one.tier or None,
                "Kind": _TITLES.get(one.kind, one.kind),
                "Amount": float(usd(one.amount)),
                "Tokens": one.tokens or None,
            }
            for one in found
        ]
    )


def _open_month(months: Sequence[tuple[str, str]]) -> None:
    rows = st.session_state["reconciliation_months"].selection.rows
    if rows and rows[0] < len(months):
        provider, month = months[rows[0]]
        address.change({"provider": provider, "bill_month": month, "cause": None})


def _open_cause(key: str, row: Reconciliation, names: Sequence[str]) -> None:
    rows = st.session_state[key].selection.rows
    if rows and rows[0] < len(names):
        address.change({"provider": row.provider, "bill_month": row.month, "cause": names[rows[0]]})


def _local(visit: Visit, at: datetime) -> Any:
    return at.astimezone(visit.formats.zone)


RECONCILIATION = Page(
    "Reconciliation",
    "reconciliation",
    ":material/balance:",
    draw,
    filters=(),
    is_live=False,
    roles=frozenset({Role.OWNER, Role.ADMIN, Role.FINANCE}),
    about="Compare providers' bills with recorded usage: every difference has a cause.",
)
