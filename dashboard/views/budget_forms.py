"""Forms that create, change and delete budgets. Input goes to the control plane unchanged, which validates it."""

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from backends.http_client.control_plane import path_segment
from contracts.rules.limits import BUDGET_LEVELS, PERIODS
from dashboard import address
from dashboard.forms import outcome
from dashboard.visit import Visit

_PERIODS: Final = ("month", *(period for period in PERIODS if period != "month"))  # the most common first
_SUBJECT_HELP: Final = (
    "Who it applies to, depending on the level: a team's id; team/project; a key's id; an end user; name=value for a "
    "tag. * gives each its own counter. Empty: the whole tenant."
)
_USD, _GPU = "USD", "GPU milliseconds"


def tenant_choice(visit: Visit, key: str, *, without: str = "") -> str:
    """Draw a choice of the tenants that the viewer may see, and return it, empty for none.

    `without`: label of the option for no tenant, which is first; empty: there is no such option.
    """
    own = visit.viewer.tenant
    ids = [own] if own is not None else [str(row["id"]) for row in visit.control.get_all("/v1/tenants")]
    options = [*([""] if without and own is None else []), *ids]
    chosen = visit.scope.tenant
    return str(
        st.selectbox(
            "Tenant",
            options,
            index=options.index(chosen) if chosen in options else 0,
            key=key,
            format_func=lambda name: name or without,
        )
    )


def create_form(visit: Visit) -> None:
    """Draw the form for a new budget."""
    with (
        st.expander("New budget", icon=":material/add:", expanded=address.get("new") == "budget"),
        st.form("new_budget", border=False, enter_to_submit=False),
    ):
        first, second, third, fourth = st.columns(4)
        with first:
            tenant = tenant_choice(visit, "new_budget_tenant")
        level = second.selectbox("Level", BUDGET_LEVELS, key="new_budget_level", help="Who shares the amount")
        subject = third.text_input("Subject", key="new_budget_subject", help=_SUBJECT_HELP)
        model = fourth.text_input(
            "Model", key="new_budget_model", help="Count only this model; empty: all models together"
        )
        first, second, third, fourth = st.columns(4)
        amount = first.text_input("Amount", key="new_budget_amount", placeholder="50.00")
        unit = second.selectbox("Unit", (_USD, _GPU), key="new_budget_unit")
        period = third.selectbox(
            "Period", _PERIODS, key="new_budget_period", help="Calendar period in the tenant's time zone"
        )
        kind = fourth.selectbox(
            "Kind", ("hard", "soft"), key="new_budget_kind", help="Hard: never overspent. Soft: only notifies"
        )
        rest = _rest("new_budget", {})
        if not st.form_submit_button("Create budget", type="primary"):
            return
        body = {
            "level": level,
            "subject": subject.strip(),
            "model": model.strip() or None,
            "period": period,
            "is_hard": kind == "hard",
            **_amount(amount, unit),
            **{name: value for name, value in rest.items() if value not in (None, "")},
        }
        with outcome("Budget created"):
            visit.control.post(f"/v1/tenants/{path_segment(tenant)}/budgets", body)


def change_form(visit: Visit, path: str, shown: Mapping[str, Any]) -> None:
    """Draw the form that changes a budget; its spending count stays."""
    with st.popover("Change", icon=":material/edit:"), st.form(f"change_{shown['id']}", border=False):
        unit = _USD if shown["amount_usd"] is not None else _GPU
        written = shown["amount_usd"] if unit == _USD else str(shown["gpu_milliseconds"])
        key = f"change_{shown['id']}"
        amount = st.text_input(f"Amount in {unit}", value=written, key=f"{key}_amount")
        kinds = ("hard", "soft")
        kind = st.selectbox("Kind", kinds, index=0 if shown["is_hard"] else 1, key=f"{key}_kind")
        rest = _rest(key, shown)
        if not st.form_submit_button("Save", type="primary"):
            return
        changed = {} if amount.strip() == written else _amount(amount, unit)
        body = {**changed, "is_hard": kind == "hard", **rest}
        with outcome("Change sent"):
            visit.control.patch(path, body)


def delete_button(visit: Visit, path: str, whom: str) -> None:
    """Draw the button that deletes a budget, with a confirmation."""
    with st.popover("Delete", icon=":material/delete:"):
        st.markdown("Deletes its spending count and thresholds. Requests are no longer limited by it.")
        if st.button("Delete this budget", type="primary", key="budget_delete"):
            with outcome(f"Budget of {whom} deleted"):
                visit.control.delete(path)
                address.change({"budget": None})


def percents(text: str) -> list[int | str]:
    """Parse comma-separated percents. Other text is returned unchanged, for the control plane to refuse."""
    words = [word.strip().removesuffix("%").strip() for word in text.split(",")]
    return [int(word) if word.isdecimal() else word for word in words if word]


def _amount(amount: str, unit: str) -> dict[str, object]:
    text = amount.strip()
    if unit == _USD:
        return {"amount_usd": text}
    return {"gpu_milliseconds": int(text) if text.isdecimal() else text}


def _rest(key: str, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Draw the fields that both forms share, and return them as fields of the control plane's request."""
    first, second = st.columns(2)
    thresholds = first.text_input(
        "Notify at (%)",
        value=", ".join(f"{percent}" for percent in shown.get("thresholds", [50, 80, 100])),
        key=f"{key}_thresholds",
        help="Percent of the amount, in rising order, such as 50, 80, 100. Each notifies once per period.",
    )
    webhook = second.text_input(
        "Webhook",
        value=shown.get("webhook_url", ""),
        key=f"{key}_webhook",
        placeholder="https://",
        help="URL that gets a signed POST at each threshold. Alert rules notify channels as well.",
    )
    first, second, third = st.columns(3)
    ends_at = first.text_input(
        "Ends",
        value=shown.get("ends_at") or "",
        key=f"{key}_ends",
        placeholder="2027-01-31T00:00:00Z",
        help="End of the budget; empty: never",
    )
    away, unpriced = ("refuse", "share"), ("refuse", "allow")
    when_away = second.selectbox(
        "If Redis is unreachable",
        away,
        index=away.index(shown.get("when_away", "refuse")),
        key=f"{key}_away",
        help="refuse, or share: each gateway allows its part of the amount",
    )
    when_unpriced = third.selectbox(
        "If a model has no price",
        unpriced,
        index=unpriced.index(shown.get("when_unpriced", "refuse")),
        key=f"{key}_unpriced",
        help="refuse, or allow: such requests are not counted and can exceed the budget",
    )
    return {
        "thresholds": percents(thresholds),
        "webhook_url": webhook.strip(),
        "ends_at": ends_at.strip() or None,
        "when_away": when_away,
        "when_unpriced": when_unpriced,
    }
