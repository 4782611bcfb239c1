"""Rate limits of a tenant: create, change and delete them."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, get_args

import streamlit as st

from contracts.errors import InvalidRequest
from contracts.rules.limits import Level, WhenAway, WhenUnpriced, Window
from contracts.rules.metrics import KIND_OF_WORD
from dashboard.forms import outcome, show_refusal
from dashboard.panels import panel
from dashboard.table import Table
from dashboard.views.admin_parts import ask_first, chosen_tenant, form, pick, quoted, submit, tenant_path
from dashboard.visit import Visit

_text = st.column_config.TextColumn
_MONEY: Final = "usd"
_UNITS: Final[Mapping[str, str]] = {word: kind.unit for word, kind in KIND_OF_WORD.items()}
_COLUMNS: Final[dict[str, Any]] = {
    "Amount": _text(alignment="right", help="Amount in any sliding window of that length"),
    "Metric": _text(help="What is counted"),
    "Window": _text(width="small"),
    "Level": _text(width="small", help="What the limit counts by"),
    "Subject": _text(help="*: counts each one separately"),
    "Model": _text(help="Count only this model; empty: all models together"),
    "If Redis is unreachable": _text(
        width="small", help="share: each gateway allows its part of the amount; refuse: requests are refused"
    ),
    "Without a price": _text(width="small", help="For limits in USD: refuse or allow a model without a price"),
    "Limit": _text(help="Its id, shown in refusals"),
}


def draw_limits(visit: Visit) -> None:
    """Draw a tenant's limits, with forms to create, change and delete one."""
    tenant = chosen_tenant(visit)
    if tenant is None:
        return
    rows = visit.control.get_all(tenant_path(tenant, "limits"))
    frame = Table(
        [
            {
                "Amount": _amount(row),
                "Metric": _UNITS[row["metric"]],
                "Window": row["window"],
                "Level": row["level"],
                "Subject": row["subject"] or (tenant if row["level"] == "tenant" else ""),
                "Model": row["model"],
                "If Redis is unreachable": row["when_away"],
                "Without a price": row["when_unpriced"] if row["metric"] == _MONEY else None,
                "Limit": row["id"],
            }
            for row in rows
        ]
    )
    chosen = pick(
        f"Limits of {tenant}",
        rows,
        frame,
        key=f"admin_limits_{tenant}",
        columns=_COLUMNS,
        help="Usage in each window stays within the amount. A refusal (429) names the retry time. Budgets are on the "
        "page Budgets & alerts. Select a row to change or delete it.",
        empty="No limits: only budgets and model capacity restrict this tenant.",
    )
    _new_limit(visit, tenant)
    if chosen is not None:
        _limit(visit, tenant, chosen)


def _amount(row: Mapping[str, Any]) -> str:
    return f"{row['amount']:,}" if row["amount_usd"] is None else f"${row['amount_usd']}"


def _new_limit(visit: Visit, tenant: str) -> None:
    with form("New limit", f"new_limit_{tenant}", visit) as may:
        left, middle, right = st.columns(3)
        amount = left.text_input("Amount", help="A whole number; for USD, decimals are allowed")
        metric = middle.selectbox("Metric", list(_UNITS), format_func=lambda name: _UNITS[name])
        window = right.selectbox(
            "Window", ["minute", *(w for w in get_args(Window) if w != "minute"), ""],
            format_func=lambda name: name or "(none: concurrency, conversation)",
        )  # fmt: skip
        level = left.selectbox("Level", get_args(Level), help="What the limit counts by")
        subject = middle.text_input(
            "Subject",
            max_chars=300,
            help="team; team/project; key id; user; tag as name=value. * counts each on its own",
        )
        model = right.text_input("Model", placeholder="all models together", max_chars=200)
        away = left.selectbox(
            "If Redis is unreachable", get_args(WhenAway), help="share: each gateway allows its part; or refuse"
        )
        unpriced = middle.selectbox("Models without a price", get_args(WhenUnpriced), help="Applies to limits in USD")
        if submit("Create limit", may=may):
            try:
                amounts = _written(metric, amount)
            except InvalidRequest as error:
                show_refusal(error)
                return
            body: dict[str, object] = {
                "level": level,
                "subject": subject.strip(),
                "metric": metric,
                "window": window or None,
                "when_away": away,
                "when_unpriced": unpriced,
                **amounts,
            }
            body |= {"model": model.strip()} if model.strip() else {}
            with outcome("Limit created"):
                visit.control.post(tenant_path(tenant, "limits"), body)


def _limit(visit: Visit, tenant: str, limit: Mapping[str, Any]) -> None:
    path, may = tenant_path(tenant, "limits", str(limit["id"])), visit.viewer.can_write
    with panel(f"{_amount(limit)} {_UNITS[limit['metric']]}", unit=str(limit["id"])):
        with st.form(f"change_{limit['id']}", border=False, enter_to_submit=False):
            plain = str(limit["amount"] if limit["amount_usd"] is None else limit["amount_usd"])
            amount = st.text_input("Amount", plain, help="The current count stays")
            if submit("Save", may=may):
                try:
                    amounts = _written(str(limit["metric"]), amount)
                except InvalidRequest as error:
                    show_refusal(error)
                    return
                with outcome("Limit changed"):
                    visit.control.patch(path, amounts)
        if st.button("Delete", icon=":material/delete:", disabled=not may, key=f"delete_limit_{limit['id']}"):
            ask_first(
                "Delete this limit?",
                f"{quoted(limit['subject'] or tenant)} is no longer limited to {quoted(_amount(limit))} "
                f"{_UNITS[limit['metric']]}. The limit's count is deleted.",
                "Delete",
                lambda: visit.control.delete(path),
                "Limit deleted",
            )


def _written(metric: str, amount: str) -> dict[str, object]:
    """Return the request field for an amount in the metric's unit. Raises InvalidRequest if it is not a number."""
    text = amount.strip().replace(",", "").removeprefix("$")
    try:
        if metric == _MONEY:
            return {"amount_usd": format(Decimal(text), "f")}
        return {"amount": int(text)}
    except (ValueError, InvalidOperation) as error:
        raise InvalidRequest(f"{amount[:40]!r} is not a number of {_UNITS[metric]}", param="amount") from error
