"""Saved views: named sets of a page's URL parameters, stored by the control plane per viewer; some are shared.

The control plane is queried only when the menu is opened.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from backends.http_client.control_plane import path_segment
from contracts.control import VIEW_PARAMETERS
from dashboard import address
from dashboard.forms import outcome
from dashboard.panels import contained
from dashboard.states import escaped
from dashboard.visit import Visit

_PATH = "/v1/saved-views"
_NAME_LENGTH = 80


def draw_saved_views(visit: Visit) -> None:
    """Draw the menu of the page's saved views: open one, save the current URL, rename, share, delete."""
    page = visit.page.path
    menu = st.popover(
        "Saved",
        icon=":material/bookmark:",
        type="tertiary",
        key=f"saved_views_{page}",
        on_change="rerun",
        help="Saved views, by name",
    )
    if not menu.open:
        return
    with menu, contained():
        if visit.viewer.token is None:
            st.caption("Views are stored by the control plane, and you have no token for it.")
            return
        rows = visit.control.get_all(_PATH, page=page)
        _list(visit, page, sorted(rows, key=lambda row: (not row["is_own"], str(row["name"]).casefold())))
        _keep(visit, page)


def _list(visit: Visit, page: str, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        st.caption("No saved views. Choose filters and a search, and save them under a name.")
    for row in rows:
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", wrap=False):
            st.button(
                escaped(str(row["name"])),
                key=f"saved_view_{row['id']}",
                type="tertiary",
                icon=":material/group:" if row["is_shared"] else None,
                help=_told(row),
                on_click=address.change,
                args=(opening(page, row["parameters"]),),
            )
            if row["is_own"]:
                if st.button(
                    ":gray[Change]",
                    key=f"saved_view_edit_{row['id']}",
                    type="tertiary",
                    help=f"Rename, share or delete {escaped(str(row['name']))}, or replace its contents",
                ):
                    _change(visit, page, row)


def opening(page: str, parameters: Mapping[str, str]) -> dict[str, str | None]:
    """Return the URL parameters that open a view; parameters that the view does not contain are `None` (removed)."""
    return {**{name: parameters.get(name) for name in VIEW_PARAMETERS[page]}, "p": None, "request": None}


def present(page: str) -> dict[str, str]:
    """Return the current URL parameters that a saved view contains."""
    return {name: value for name in sorted(VIEW_PARAMETERS[page]) if (value := address.get(name)) is not None}


def _told(row: Mapping[str, Any]) -> str:
    parts = ", ".join(f"{name} {value}" for name, value in row["parameters"].items()) or "everything"
    whose = f" Shared by {row['shared_by']}." if not row["is_own"] else " You share it." if row["is_shared"] else ""
    return escaped(f"Shows {parts}.{whose}")


def _keep(visit: Visit, page: str) -> None:
    kept = present(page)
    with st.form(f"saved_view_new_{page}", border=False, clear_on_submit=True):
        name = st.text_input(
            "Save this view as", max_chars=_NAME_LENGTH, placeholder="Failures of search", key="saved_view_name"
        )
        shown = ", ".join(f"{parameter} {value}" for parameter, value in kept.items()) or "all requests of an hour"
        st.caption(f"It contains: {escaped(shown)}")
        is_shared = st.checkbox(_share_words(visit), key="saved_view_shared", help=_SHARING)
        if st.form_submit_button("Save view", type="primary"):
            body = {"name": name, "page": page, "parameters": kept, "is_shared": is_shared}
            with outcome(f"Saved as {name}"):
                visit.control.post(_PATH, body)


_SHARING = "They see it in this menu. It grants no access: everyone sees what their own role allows."


def _share_words(visit: Visit) -> str:
    tenant = visit.viewer.tenant
    whom = f"of {escaped(tenant)}" if tenant is not None else "who sees the whole installation"
    return f"Share with everyone {whom}"


def _change(visit: Visit, page: str, row: Mapping[str, Any]) -> None:
    """Open the dialog to rename, replace, share or delete one of the viewer's own views."""

    @st.dialog("Change this view")
    def asked() -> None:
        path = f"{_PATH}/{path_segment(str(row['id']))}"
        name = st.text_input("Name", str(row["name"]), max_chars=_NAME_LENGTH, key=f"saved_view_rename_{row['id']}")
        is_shared = st.checkbox(
            _share_words(visit), bool(row["is_shared"]), key=f"saved_view_reshare_{row['id']}", help=_SHARING
        )
        again = st.checkbox("Replace the saved filters with the current ones", key=f"saved_view_anew_{row['id']}")
        change: dict[str, object] = {"name": name, "is_shared": is_shared}
        change |= {"parameters": present(page)} if again else {}
        with st.container(horizontal=True):
            if st.button("Save", type="primary", key="saved_view_save"):
                with outcome(f"{name} changed"):
                    visit.control.patch(path, change)
            if st.button("Delete", icon=":material/delete:", key="saved_view_delete"):
                with outcome(f"{row['name']} deleted"):
                    visit.control.delete(path)

    asked()
