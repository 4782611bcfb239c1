"""Parts that admin sections share: tenant choice, table with a selectable row, forms, confirmation, secret dialog."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import streamlit as st

from backends.http_client.control_plane import path_segment
from contracts.errors import TollkeeperError
from dashboard import controls
from dashboard.formats import Formats
from dashboard.forms import outcome, show_refusal
from dashboard.panels import show_table
from dashboard.states import escaped, is_same_name
from dashboard.table import Table
from dashboard.visit import Visit

Rows = Sequence[Mapping[str, Any]]
_READ_ONLY: Final = "Your role may view this, not change it."


def chosen_tenant(visit: Visit) -> str | None:
    """Draw the tenant choice and return the tenant's id; `None`, with a note, if there are no tenants."""
    tenants = [str(row["id"]) for row in visit.control.get_all("/v1/tenants")]
    if not tenants:
        st.caption("No tenants yet. Create one under Tenants & teams.")
        return None
    if len(tenants) == 1:
        return tenants[0]
    travelled = visit.filters.tenant
    default = travelled if travelled in tenants else tenants[0]
    return controls.select("of", "Tenant", tenants, default=default, help="Tenant to show")


def show_unreadable(rows: Rows) -> None:
    """Draw a warning for each row that the section could not read."""
    for table, row, reason in sorted({(str(one["table"]), str(one["id"]), str(one["reason"])) for one in rows}):
        sentence = f"Row {row} of {table} is not shown: {reason}. Run `tollkeeper rows list` to repair or delete it."
        st.warning(escaped(sentence))


def tenant_path(tenant: str, *parts: str) -> str:
    """Return the control plane path below a tenant, with each part percent-encoded as one segment."""
    return "/".join(("/v1/tenants", path_segment(tenant), *map(path_segment, parts)))


def pick(
    title: str,
    rows: Rows,
    frame: Table,
    *,
    key: str,
    columns: Mapping[str, Any],
    help: str,
    empty: str,
    name: str = "id",
    formats: Formats | None = None,
) -> Mapping[str, Any] | None:
    """Draw a table with a selectable row, and return the selected row; `None` if there is none.

    `key` identifies the table and its owner, `name` the field that identifies a row: the selection stays with its row
    if other rows are added.
    """
    ids = [str(row[name]) for row in rows]
    chosen = st.session_state.get(_chosen_key(key))
    place = ids.index(chosen) if chosen in ids else None
    held = st.session_state.get(key)
    if held is not None and list(held["selection"]["rows"]) != ([] if place is None else [place]):
        st.session_state[key] = {
            "selection": {"rows": [] if place is None else [place]}
        }  # the selection follows its row
    show_table(
        title, frame, key=key, columns=columns, help=help, empty=empty, formats=formats,
        on_select=partial(_choose, key, ids),
    )  # fmt: skip
    return None if place is None else rows[place]


def _choose(key: str, ids: Sequence[str]) -> None:
    """Store the id of the selected row; `ids` are the rows' ids as drawn."""
    places = st.session_state[key].selection.rows
    st.session_state[_chosen_key(key)] = ids[places[0]] if places and places[0] < len(ids) else None


def _chosen_key(key: str) -> str:
    return f"{key}_chosen"


@contextmanager
def form(
    title: str, key: str, visit: Visit, *, icon: str = ":material/add:", may: bool | None = None
) -> Iterator[bool]:
    """Draw a collapsible form; yield whether the viewer may use it (`may`, by default whether their role can write)."""
    may = visit.viewer.can_write if may is None else may
    with st.expander(title, icon=icon):
        if not may:
            st.caption(_READ_ONLY)
        with st.form(key, border=False, enter_to_submit=False):
            yield may


def submit(label: str, *, may: bool) -> bool:
    """Draw a form's button; return whether it was pressed."""
    return st.form_submit_button(label, type="primary", disabled=not may)


def ask_first(title: str, sentence: str, word: str, act: Callable[[], object], done: str, *, typed: str = "") -> None:
    """Open a dialog that asks before an irreversible action; if `typed` is given, the viewer must type that name.

    `word` is the button's label. A refusal by the control plane is shown in the dialog.
    """

    @st.dialog(title)
    def asked() -> None:
        st.markdown(sentence)
        written = st.text_input(f"Type {escaped(typed)} to continue", key="ask_first_typed") if typed else ""
        yes, no = st.columns(2)
        if no.button("Cancel", width="stretch", key="ask_first_no"):
            st.rerun()
        if yes.button(
            word, type="primary", width="stretch", key="ask_first_yes", disabled=not is_same_name(written, typed)
        ):
            with outcome(done):
                act()

    asked()


def show_secret(title: str, secret: str, sentence: str) -> None:
    """Show a new secret in a dialog, once: it is not stored in the session and is gone when the dialog is closed."""

    @st.dialog(title, dismissible=True, on_dismiss="rerun")
    def shown() -> None:
        st.markdown(sentence)
        st.code(secret, language=None, wrap_lines=True)
        st.caption("Only a hash is stored. If you lose it, create a new one.")
        if st.button("I have copied it", type="primary", width="stretch", key="secret_copied"):
            st.rerun()

    shown()


def made_secret(act: Callable[[], Mapping[str, Any]]) -> str | None:
    """Call `act` and return the secret in its result; if the control plane refuses, show why and return `None`."""
    try:
        return str(act()["secret"])
    except TollkeeperError as error:
        show_refusal(error)
        return None


def moment(visit: Visit, text: object) -> datetime | None:
    """Convert a time of the control plane to the viewer's time zone, without the zone, for tables."""
    if not text:
        return None
    return datetime.fromisoformat(str(text)).astimezone(visit.viewer.zone).replace(tzinfo=None)


def utc_of(visit: Visit, local: datetime | None) -> str | None:
    """Convert a time that the viewer typed, in their time zone, to UTC text for the control plane."""
    return None if local is None else local.replace(tzinfo=visit.viewer.zone).astimezone(UTC).isoformat()


def quoted(name: object) -> str:
    """Return a name in bold Markdown, escaped."""
    return f"**{escaped(str(name))}**"


def when_column(help: str = "") -> Any:
    """Return Streamlit's configuration of a column of times."""
    return st.column_config.DatetimeColumn(format="D MMM YYYY HH:mm", help=help or None)
