"""Recommendations as a table: action, saving, and evidence."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import streamlit as st

from analytics.recommendations.recommendation import Recommendation
from dashboard.charts import group_name
from dashboard.formats import Formats
from dashboard.money_column import Money
from dashboard.panels import show_table
from dashboard.table import Table

# Arguments of the query, the same on every page so that they share one result: look-back days, and cache seconds.
RECOMMENDED_DAYS: Final = 7
RECOMMENDED_SECONDS: Final = 3_600
_WIDE: Final = 270  # pixels: two lines of a recommendation in a wide window
_text = st.column_config.TextColumn
RECOMMENDATION_COLUMNS: Final[dict[str, Any]] = {
    "Saving": Money(4, f"In the last {RECOMMENDED_DAYS} days, at current prices; a dash: no price yet"),
    "Tenant": _text(
        width="small", help="Tenant of the requests; all tenants: about replicas, which serve every tenant"
    ),
    "Model": _text(),
    "Recommendation": _text(width=_WIDE, help="What to change"),
    "Caveat": _text(width="medium", help="What the records cannot show"),
    "Evidence": _text(width=_WIDE, help="Figures from the records; a share of 0.3 is 30 %"),
}


def show_recommendations(title: str, found: Iterable[Recommendation], formats: Formats, *, key: str) -> None:
    """Draw the recommendations as a table, in the given order."""
    show_table(
        title,
        recommendations_frame(found),
        key=key,
        columns=RECOMMENDATION_COLUMNS,
        formats=formats,
        text_lines=2,
        help="Same as `tollkeeper savings`: what the last week's requests would have cost less, at current price "
        "cards. Do not add savings up: two may concern the same request.",
        empty="No recommendations: nothing in the last week's requests would save 10 % or more.",
    )


def recommendations_frame(found: Iterable[Recommendation]) -> Table:
    """Return a row per recommendation, in the given order."""
    return Table(
        [
            {
                "Saving": None if one.saving_usd is None else float(one.saving_usd),
                "Tenant": one.tenant or "all tenants",
                "Model": group_name(one.model),
                "Recommendation": one.action,
                "Evidence": _said(one.evidence),
                "Caveat": one.caution,
            }
            for one in found
        ],
        columns=list(RECOMMENDATION_COLUMNS),
    )


def _said(evidence: Mapping[str, int | float | str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_number(value)}" for name, value in evidence.items())


def _number(value: int | float | str) -> str:
    return f"{value:,}" if isinstance(value, int | float) else value or "(none)"
