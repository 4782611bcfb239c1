"""The form that creates a service level objective."""

from decimal import Decimal
from typing import Any, Final

import streamlit as st

from dashboard.forms import outcome
from dashboard.viewer import ADMINS
from dashboard.views.budget_forms import tenant_choice
from dashboard.visit import Visit

_PATH: Final = "/v1/slos"
_INDICATORS: Final = {
    "availability": "Availability: requests are answered",
    "ttft": "Time to first token",
    "end_to_end": "Time to the complete answer",
    "inter_token": "Inter-token latency",
}


def may_create(visit: Visit) -> bool:
    """Return whether the viewer's role may create SLOs."""
    return visit.viewer.can_write and visit.viewer.role in ADMINS


def draw_slo_form(visit: Visit, *, is_open: bool = False) -> None:
    """Draw the form; `is_open` expands it."""
    with (
        st.expander("New SLO", icon=":material/add:", expanded=is_open),
        st.form("new_slo", border=False, enter_to_submit=False),
    ):
        first, second, third = st.columns(3)
        name = first.text_input("Id", key="new_slo_id", help="1 to 63 of a-z, 0-9 and -; it never changes")
        indicator = second.selectbox(
            "Indicator", list(_INDICATORS), key="new_slo_indicator", format_func=lambda name: _INDICATORS[name]
        )
        target = third.number_input(
            "Target %", 50.0, 99.999, 99.0, 0.1, format="%.3f", key="new_slo_target", help="Share of good requests"
        )
        threshold = first.number_input(
            "Threshold in ms",
            1,
            600_000,
            1_000,
            key="new_slo_threshold",
            help="A request is good if its time is at most this. Not used for availability.",
        )
        days = second.number_input("Window in days", 1, 90, 28, key="new_slo_days")
        with third:
            tenant = tenant_choice(visit, "new_slo_tenant", without="all tenants")
        model = first.text_input("Model", key="new_slo_model", placeholder="all", help="Only requests to this model")
        if st.form_submit_button("Create SLO", type="primary"):
            body: dict[str, Any] = {
                "id": name.strip(),
                "indicator": indicator,
                "target_percent": format(Decimal(str(round(target, 3))).normalize(), "f"),
                "window_days": int(days),
                "tenant": tenant,
                "model": model.strip(),
            }
            if indicator != "availability":
                body["thresholds_ms"] = {indicator: str(int(threshold))}
            with outcome("SLO created; past requests count too"):
                visit.control.post(_PATH, body)
