"""Recommendations as a table: action, saving, and evidence."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import streamlit as st

from analytics.recommendations.recommendation import Kind, Recommendation
from dashboard.charts import group_name
from dashboard.formats import Formats
from dashboard.table import Table

# Arguments of the query, the same on every page so that they share one result: look-back days, and cache seconds.
RECOMMENDED_DAYS: Final = 7
RECOMMENDED_SECONDS: Final = 3_600
_text = st.column_config.TextColumn
_KINDS: Final[Mapping[Kind, str]] = {
    "right_size": "smaller model",
    "cacheable_prefix": "cached prompts",
    "batch": "batches",
    "idle_replicas": "idle replicas",
    "cheaper_provider": "other provider",
}
RECOMMENDATION_COLUMNS: Final[dict[str, Any]] = {
    "Saving": _text(width="small", help="For the period examined, at current prices; a dash: no price yet"),
    "By": _text(help="Kind of change"),
    "Tenant": _text(
        width="small", help="Tenant of the requests; all tenants: about replicas, which serve every tenant"
    ),
    "Model": _text(),
    "Recommendation": _text(width="large", help="What to change"),
    "Evidence": _text(width="large", help="Figures from the records; a share of 0.3 is 30 %"),
    "Caveat": _text(width="medium", help="What the records cannot show"),
}


def recommendations_frame(found: Iterable[Recommendation], formats: Formats) -> Table:
    """Return a row per recommendation, in the given order."""
    return Table(
        [
            {
                "Saving": formats.money(one.saving_usd),
                "By": _KINDS[one.kind],
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
