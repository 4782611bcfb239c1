"""What the admin page's sections share: the choice of a tenant, a table with one line chosen, asking before an act."""

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
    """Draw the choice of a tenant and give its id; `None`, with a sentence, where there is none."""
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
    """Name the rows that the section could not show, each once."""
    for table, row, reason in sorted({(str(one["table"]), str(one["id"]), str(one["reason"])) for one in rows}):
        sentence = f"Row {row} of {table} is not shown: {reason}. Run `tollkeeper rows list` to repair or delete it."
        st.warning(escaped(sentence))


def tenant_path(tenant: str, *parts: str) -> str:
    """Return the path of something of a tenant, each part written as one segment."""
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
    """Draw a table whose lines can be chosen, and return the row of the chosen one.

    `key` names the table and whose rows these are, `name` the field that rows are known by: the choice stays with its
    row, whatever comes before it later.
    """
    ids = [str(row[name]) for row in rows]
    chosen = st.session_state.get(_chosen_key(key))
    place = ids.index(chosen) if chosen in ids else None
    held = st.session_state.get(key)
    if held is not None and list(held["selection"]["rows"]) != ([] if place is None else [place]):
        st.session_state[key] = {"selection": {"rows": [] if place is None else [place]}}  # the mark goes with its row
    show_table(
        title, frame, key=key, columns=columns, help=help, empty=empty, formats=formats,
        on_select=partial(_choose, key, ids),
    )  # fmt: skip
    return None if place is None else rows[place]


def _choose(key: str, ids: Sequence[str]) -> None:
    """Keep the id of the chosen line, by the lines as they were drawn."""
    places = st.session_state[key].selection.rows
    st.session_state[_chosen_key(key)] = ids[places[0]] if places and places[0] < len(ids) else None


def _chosen_key(key: str) -> str:
    return f"{key}_chosen"


@contextmanager
def form(
    title: str, key: str, visit: Visit, *, icon: str = ":material/add:", may: bool | None = None
) -> Iterator[bool]:
    """Draw a form that opens under its title; provide whether the viewer may fill it in: `may`, else who can write."""
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
    """Ask before something that cannot be taken back; with `typed`, its name has to be written first.

    What the control plane refuses is said where it was asked.
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
    """Show a secret this once: it is in nobody's session, and gone when the dialog is closed."""

    @st.dialog(title, dismissible=True, on_dismiss="rerun")
    def shown() -> None:
        st.markdown(sentence)
        st.code(secret, language=None, wrap_lines=True)
        st.caption("Only a hash is stored. If you lose it, create a new one.")
        if st.button("I have copied it", type="primary", width="stretch", key="secret_copied"):
            st.rerun()

    shown()


def made_secret(act: Callable[[], Mapping[str, Any]]) -> str | None:
    """Make something with a secret and give that; `None`, with the control plane's words, where it refuses."""
    try:
        return str(act()["secret"])
    except TollkeeperError as error:
        show_refusal(error)
        return None


def moment(visit: Visit, text: object) -> datetime | None:
    """Return a time of the control plane's as the viewer's clock has it, without a zone, as tables show it."""
    if not text:
        return None
    return datetime.fromisoformat(str(text)).astimezone(visit.viewer.zone).replace(tzinfo=None)


def utc_of(visit: Visit, local: datetime | None) -> str | None:
    """Return a time that the viewer typed, in their zone, as the control plane takes it."""
    return None if local is None else local.replace(tzinfo=visit.viewer.zone).astimezone(UTC).isoformat()


def quoted(name: object) -> str:
    """Write a name in bold, whatever stands in it."""
    return f"**{escaped(str(name))}**"


def when_column(help: str = "") -> Any:
    """Return a table's column of times."""
    return st.column_config.DatetimeColumn(format="D MMM YYYY HH:mm", help=help or None)
