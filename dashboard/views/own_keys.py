"""Self-service: developers create keys with a monthly cap for themselves and see their usage."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import streamlit as st

from analytics.own_usage import OwnDay, own_usage
from dashboard.money_column import Money
from dashboard.page import PEOPLE, Page
from dashboard.panels import Figure, note, panel, show_figures, show_table
from dashboard.reader import settings
from dashboard.states import escaped
from dashboard.table import Table
from dashboard.views.admin_parts import (
    ask_first,
    made_secret,
    moment,
    pick,
    quoted,
    show_secret,
    submit,
    when_column,
)
from dashboard.visit import Visit

_DAYS: Final = 30
_text = st.column_config.TextColumn
_KEYS: Final[dict[str, Any]] = {
    "Name": _text(),
    "Key": _text(help="Its id, shown on records and costs"),
    "Ends with": _text(width="small", help="The last characters of its secret"),
    "State": _text(width="small"),
    "Team": _text(width="small"),
    "Cap per month": Money(2, "Requests that would exceed it are refused"),
    "Used this month": Money(4, "As gateways report it, a few seconds old"),
    "Created": when_column(),
}
_USE: Final[dict[str, Any]] = {
    "Day": st.column_config.DateColumn(format="D MMM YYYY", help="UTC"),
    "Model": _text(),
    "Requests": st.column_config.NumberColumn(format="localized"),
    "Refused or failed": st.column_config.NumberColumn(format="localized"),
    "Input tokens": st.column_config.NumberColumn(format="localized"),
    "Output tokens": st.column_config.NumberColumn(format="localized"),
    "Cost": Money(6),
}


def draw(visit: Visit) -> None:
    """Draw the viewer's keys, a form to create one, and their usage in the last 30 days."""
    viewer = visit.viewer
    if viewer.tenant is None or viewer.is_local:
        note(
            "Own keys belong to an account of one tenant. "
            "Create one with `tollkeeper accounts add EMAIL --role developer --tenant TENANT`, "
            "or let an identity provider create it. Create keys for applications on Admin > Keys."
        )
        return
    found = visit.control.get("/v1/self/keys")
    rows: Sequence[Mapping[str, Any]] = found["data"]
    works = [row for row in rows if row["revoked_at"] is None]
    _new_key(visit, found, len(works), len(rows))
    usage = _usage(visit, rows)
    _figures(visit, works, usage)
    _keys(visit, rows)
    _days(visit, usage)


def _new_key(visit: Visit, found: Mapping[str, Any], have: int, ever: int) -> None:
    most, cap = int(found["most"]), visit.formats.money(Decimal(str(found["cap_usd"])))
    with panel("New key", help="It belongs to your team, works at once, and ends with your account."):
        if have >= most:
            note(f"You have {have} of {most} keys. Revoke one to make another.")
            return
        note(f"A key may spend at most {cap} in a calendar month; then it is refused until the next month.")
        with st.form("own_key", border=False, enter_to_submit=True):
            name = st.text_input("Name", f"key {ever + 1}", max_chars=200, help="Purpose, to tell keys apart")
            pressed = submit("Create key", may=True)
    if pressed:
        secret = made_secret(lambda: visit.control.post("/v1/self/keys", {"name": name}))
        if secret is not None:
            address = settings().public_gateway_url().rstrip("/")
            show_secret(
                "Your new key",
                secret,
                f"{quoted(name)}. Set `OPENAI_BASE_URL={address}/v1` and `OPENAI_API_KEY` to this secret, "
                "or try it in the Playground.",
            )


def _usage(visit: Visit, rows: Sequence[Mapping[str, Any]]) -> tuple[OwnDay, ...]:
    if not rows:
        return ()
    end = visit.now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    ids = tuple(sorted(str(row["id"]) for row in rows))
    start = end.replace(hour=0) - timedelta(days=_DAYS - 1)
    return visit.read(own_usage, visit.viewer.tenant, visit.viewer.team, ids, start, end)


def _figures(visit: Visit, works: Sequence[Mapping[str, Any]], usage: Sequence[OwnDay]) -> None:
    write = visit.formats
    spent = sum((Decimal(str(row["spent_usd"])) for row in works if row["spent_usd"] is not None), Decimal(0))
    caps = [Decimal(str(row["cap_usd"])) for row in works if row["cap_usd"] is not None]
    ends = next((moment(visit, row["period_end"]) for row in works if row["period_end"]), None)
    until = f"until {ends:%-d %B}" if isinstance(ends, datetime) else "this month"
    requests, refused = sum(day.requests for day in usage), sum(day.refused for day in usage)
    unpriced = sum(day.unpriced for day in usage)
    show_figures(
        [
            Figure("Used this month", write.money(spent), until, "Spent by your active keys, as gateways report it"),
            Figure(
                "Left",
                write.money(max(sum(caps, Decimal(0)) - spent, Decimal(0))),
                f"of {write.money(sum(caps, Decimal(0)))}",
            ),
            Figure(
                "Requests", write.count(requests), f"last {_DAYS} days", "By all of your keys, including revoked ones"
            ),
            Figure("Refused or failed", write.count(refused), f"last {_DAYS} days", tone="warn" if refused else None),
            Figure(
                "Tokens",
                write.count(sum(day.input_tokens + day.output_tokens for day in usage)),
                f"last {_DAYS} days" + (f", {unpriced} unpriced" if unpriced else ""),
                "Input and output",
            ),
        ]
    )


def _keys(visit: Visit, rows: Sequence[Mapping[str, Any]]) -> None:
    frame = Table(
        [
            {
                "Name": row["name"],
                "Key": row["id"],
                "Ends with": row["hint"],
                "State": "active" if row["revoked_at"] is None else "revoked",
                "Team": row["team_id"],
                "Cap per month": None if row["cap_usd"] is None else Decimal(str(row["cap_usd"])),
                "Used this month": None if row["spent_usd"] is None else Decimal(str(row["spent_usd"])),
                "Created": moment(visit, row["created_at"]),
            }
            for row in rows
        ]
    )
    chosen = pick(
        "Your keys",
        rows,
        frame,
        key="own_keys",
        columns=_KEYS,
        help="Select a row to revoke its key.",
        empty="You have no key yet. Create one above: it works within a second.",
        formats=visit.formats,
    )
    if chosen is None or chosen["revoked_at"] is not None:
        return
    if st.button(f"Revoke {escaped(str(chosen['name']))}", icon=":material/block:", key="own_key_revoke"):
        ask_first(
            "Revoke this key?",
            f"{quoted(chosen['name'])} is refused on every gateway within a second, and cannot be restored.",
            "Revoke",
            lambda: visit.control.delete(f"/v1/self/keys/{chosen['id']}"),
            f"Key {chosen['name']} revoked",
        )


def _days(visit: Visit, usage: Sequence[OwnDay]) -> None:
    by_day: dict[Any, list[OwnDay]] = defaultdict(list)
    for day in usage:
        by_day[day.day].append(day)
    frame = Table(
        [
            {
                "Day": one.day,
                "Model": one.model,
                "Requests": one.requests,
                "Refused or failed": one.refused,
                "Input tokens": one.input_tokens,
                "Output tokens": one.output_tokens,
                "Cost": None if one.unpriced and not one.cost_usd else one.cost_usd,
            }
            for day in sorted(by_day, reverse=True)
            for one in by_day[day]
        ]
    )
    show_table(
        "Usage of your keys",
        frame,
        key="own_usage",
        columns=_USE,
        help=f"The last {_DAYS} days, by day and model.",
        empty="No usage yet. Send a request with your key, or try it in the Playground.",
        formats=visit.formats,
    )


OWN_KEYS = Page(
    "My keys",
    "my-keys",
    ":material/key:",
    draw,
    filters=(),
    is_live=False,
    roles=PEOPLE,
    about="Create a key with a monthly cap, and see the usage of your keys.",
)
