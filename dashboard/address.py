"""All choices on a page are parameters of its URL: a link shows the same, and the back button undoes one choice."""

from collections.abc import Mapping
from typing import Final

import streamlit as st

# The filters, which links to other pages carry; all other parameters belong to one page.
TRAVELLING: Final = ("range", "from", "to", "compare", "tenant", "team", "project", "key", "model")
_PAGES_KEY: Final = "frame_pages"  # by path; set by the frame in each run


def get(name: str) -> str | None:
    """Return a parameter of the page's URL; `None` if it is missing or empty."""
    return st.query_params.get(name) or None


def change(changes: Mapping[str, str | None]) -> None:
    """Change parameters of the page's URL; `None` and empty values remove one. The next run reads them."""
    address = {**st.query_params.to_dict(), **changes}
    st.query_params.from_dict({name: value for name, value in address.items() if value})


def carried_filters() -> dict[str, str]:
    """Return the filters in the page's URL, which a link to another page carries."""
    address = st.query_params.to_dict()
    return {name: address[name] for name in TRAVELLING if address.get(name)}


def page_link(
    path: str, label: str, parameters: Mapping[str, str | None] | None = None, *, icon: str = "", help: str = ""
) -> None:
    """Draw a link to another page with the current filters; `parameters` adds to them, or removes those that are
    `None`.

    If the viewer may not open that page, the label is drawn as plain text.
    """
    page = st.session_state.get(_PAGES_KEY, {}).get(path)
    if page is None:
        st.markdown(label, help=help or None)
        return
    wanted = {**carried_filters(), **(parameters or {})}
    st.page_link(
        page,
        label=label,
        icon=icon or None,
        help=help or None,
        query_params={name: value for name, value in wanted.items() if value},
    )


def remember_pages(pages: Mapping[str, object]) -> None:
    """Set the pages, by path, that `page_link` can link to in this run."""
    st.session_state[_PAGES_KEY] = dict(pages)
