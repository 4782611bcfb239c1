"""Controls of a single page, whose values are in its URL as the filters are: a link shows the same."""

from collections.abc import Callable, Sequence
from typing import Final

import streamlit as st

from contracts.errors import InvalidRequest
from dashboard import address

_KEY: Final = "control_"


def segmented(
    name: str,
    label: str,
    options: Sequence[str],
    *,
    default: str,
    format_func: Callable[[str], str] = str,
    help: str | None = None,
) -> str:
    """Draw a segmented control and return the choice. Raises InvalidRequest if the URL has an unknown value."""
    chosen = _chosen(name, label, options, default)
    st.segmented_control(
        label,
        list(options),
        key=_KEY + name,
        required=True,
        format_func=format_func,
        label_visibility="collapsed",
        help=help,
        on_change=_changed,
        args=(name, default),
    )
    return chosen


def select(
    name: str,
    label: str,
    options: Sequence[str],
    *,
    default: str,
    format_func: Callable[[str], str] = str,
    help: str | None = None,
    width: int = 200,
) -> str:
    """Draw a select box and return the choice. Raises InvalidRequest if the URL has an unknown value."""
    chosen = _chosen(name, label, options, default)
    st.selectbox(
        label,
        list(options),
        key=_KEY + name,
        required=True,
        format_func=format_func,
        label_visibility="collapsed",
        help=help,
        on_change=_changed,
        args=(name, default),
        width=width,
    )
    return chosen


def text(name: str, label: str, *, placeholder: str = "", help: str | None = None, width: int = 260) -> str:
    """Draw a text field, such as a search, and return its text; "" if it is empty."""
    st.session_state[_KEY + name] = address.get(name) or ""
    st.text_input(
        label,
        key=_KEY + name,
        placeholder=placeholder or label,
        label_visibility="collapsed",
        help=help,
        max_chars=500,
        on_change=_changed,
        args=(name, ""),
        width=width,
    )
    return str(st.session_state[_KEY + name]).strip()


def toggle(name: str, label: str, *, help: str | None = None) -> bool:
    """Draw a switch and return whether it is on; off unless the URL says `yes`."""
    st.session_state[_KEY + name] = address.get(name) == "yes"
    st.toggle(label, key=_KEY + name, help=help, on_change=_toggled, args=(name,))
    return bool(st.session_state[_KEY + name])


def _chosen(name: str, label: str, options: Sequence[str], default: str) -> str:
    chosen = address.get(name) or default
    if chosen not in options:
        shown = ", ".join(options[:12])
        raise InvalidRequest(f"{label.lower()} cannot be {chosen!r}; choose one of {shown}", param=name)
    st.session_state[_KEY + name] = chosen
    return chosen


def _changed(name: str, default: str) -> None:
    value = str(st.session_state[_KEY + name] or "")
    address.change({name: None if value == default else value})


def _toggled(name: str) -> None:
    address.change({name: "yes" if st.session_state[_KEY + name] else None})
