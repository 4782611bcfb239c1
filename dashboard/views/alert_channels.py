"""Alert channels: their state, test notifications, and a form to create one."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import streamlit as st

from backends.http_client.control_plane import path_segment
from contracts.rules.alert_channels import CHANNEL_KINDS, traits_of
from dashboard import address
from dashboard.formats import UNKNOWN
from dashboard.forms import outcome
from dashboard.panels import note, panel, show_table
from dashboard.table import Table
from dashboard.views.alert_notices import notices_frame
from dashboard.views.budget_forms import tenant_choice
from dashboard.visit import Visit

_TABLE: Final = "channels_table"
_PATH: Final = "/v1/alert-channels"
_ON_THE_WAY: Final = ("waiting", "sending")
_POLL_SECONDS: Final = 2.0


def draw_channels(visit: Visit) -> None:
    """Draw all channels that the viewer may see, the selected one's details, and the form to create one."""
    channels = visit.control.get_all(_PATH)
    latest = _last_deliveries(visit)
    show_table(
        "Channels",
        Table(
            [
                {
                    "Channel": row["id"],
                    "Kind": traits_of(row["kind"]).label,
                    "Owner": row["tenant_id"] or "whole installation",
                    "Address": row["address"],
                    "Receives": ", ".join([*row.get("severities", ()), *row.get("tenants", ())]) or "all alerts",
                    "Last delivery": latest.get(str(row["id"]), "none yet"),
                    "Created": visit.formats.moment(datetime.fromisoformat(row["created_at"])),
                }
                for row in channels
            ]
        ),
        key=_TABLE,
        columns={
            "Address": st.column_config.TextColumn(help="Partly hidden, depending on your role"),
            "Receives": st.column_config.TextColumn(help="Alerts of these severities and tenants only"),
        },
        help="Where alerts are sent. Select a row to send a test notification to it, or to delete it.",
        on_select=partial(_open_row, [str(row["id"]) for row in channels]),
        empty="No channels: alerts reach nobody. Create one below.",
    )
    chosen = address.get("channel")
    channel = next((row for row in channels if row["id"] == chosen), None)
    if channel is not None and visit.viewer.can_write:
        _detail(visit, channel)
    if visit.viewer.can_write:
        _create(visit)


def _last_deliveries(visit: Visit) -> dict[str, str]:
    """Return the delivery state of each channel's latest notification, with the reason if it failed."""
    found: dict[str, str] = {}
    for row in visit.control.get("/v1/alert-deliveries", limit=500)["data"]:
        at = visit.formats.moment(datetime.fromisoformat(row["created_at"]))
        state = {"delivered": "delivered", "given_up": "FAILED", "unknown": "may have arrived"}.get(row["state"])
        why = f": {row['last_error']}" if row["last_error"] else ""
        found.setdefault(str(row["channel"]), f"{state or 'waiting'} {at}{why}")
    return found


def _detail(visit: Visit, channel: Mapping[str, Any]) -> None:
    path = f"{_PATH}/{path_segment(channel['id'])}"
    with panel(f"Channel {channel['id']}", unit=traits_of(channel["kind"]).label):
        with st.container(horizontal=True):
            if st.button("Send a test", icon=":material/send:", type="primary", key="channel_test"):
                with outcome("Test notification queued"):
                    visit.control.post(f"{path}/test", {})
            with st.popover("Delete", icon=":material/delete:"):
                st.markdown("To delete a channel, first remove it from all rules.")
                if st.button("Delete this channel", type="primary", key="channel_delete"):
                    with outcome("Channel deleted"):
                        visit.control.delete(path)
                        address.change({"channel": None})
            st.button("Close", on_click=address.change, args=({"channel": None},), key="channel_close")
        _latest(visit, str(channel["id"]))


def _latest(visit: Visit, channel: str) -> None:
    """Draw the channel's latest notifications; refresh every two seconds while one is in delivery."""

    def draw() -> None:
        rows = [row for row in visit.control.get("/v1/alert-deliveries")["data"] if row["channel"] == channel][:5]
        if not rows:
            note("No notifications yet.")
            return
        st.dataframe(
            notices_frame(visit, rows).as_arrow(),
            hide_index=True,
            placeholder=UNKNOWN,
            lazy=False,
            key="channel_notices",
        )
        if rows[0]["state"] in _ON_THE_WAY:
            note("The analytics process sends it; this refreshes every two seconds.")

    is_waiting = any(
        row["channel"] == channel and row["state"] in _ON_THE_WAY
        for row in visit.control.get("/v1/alert-deliveries")["data"]
    )
    st.fragment(draw, run_every=_POLL_SECONDS if is_waiting else None)()


def _create(visit: Visit) -> None:
    with (
        st.expander("New channel", icon=":material/add:", expanded=address.get("new") == "channel"),
        st.form("new_channel", border=False, enter_to_submit=False),
    ):
        first, second, third = st.columns(3)
        name = first.text_input("Id", key="new_channel_id", help="1 to 63 of a-z, 0-9 and -; it never changes")
        kind = second.selectbox(
            "Kind", CHANNEL_KINDS, key="new_channel_kind", format_func=lambda kind: traits_of(kind).label
        )
        with third:
            tenant = tenant_choice(visit, "new_channel_tenant", without="whole installation")
        where = st.text_input(
            "Address",
            key="new_channel_address",
            type="password",
            help="A URL, an e-mail address, or PagerDuty's routing key. It is stored encrypted and not shown again.",
        )
        severities = st.multiselect(
            "Severities", ["page", "ticket"], key="new_channel_severities", help="Severities to send; none chosen: all"
        )
        if st.form_submit_button("Create channel", type="primary"):
            body = {
                "id": name.strip(),
                "kind": kind,
                "tenant": tenant,
                "address": where.strip(),
                "severities": severities,
            }
            with outcome("Channel created; send a test to it"):
                visit.control.post(_PATH, body)


def _open_row(ids: Sequence[str]) -> None:
    rows = st.session_state[_TABLE].selection.rows
    address.change({"channel": ids[rows[0]] if rows and rows[0] < len(ids) else None})
