"""Submit a change: show the control plane's refusal, or refresh the page."""

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from contracts.errors import AuthenticationFailed, ControlUnavailable, TollkeeperError
from dashboard.reader import forget_control_answers
from dashboard.states import escaped


@contextmanager
def outcome(done: str, *, redraws: bool = True) -> Iterator[None]:
    """Run a change in a `with` block: on success show `done` and redraw the page, else show the control plane's
    refusal.

    Example: `with outcome("Budget created"): visit.control.post("/v1/tenants/acme/budgets", body)`
    """
    try:
        yield
    except TollkeeperError as error:
        show_refusal(error)
        return
    st.toast(escaped(done), icon=":material/check:")
    if redraws:
        forget_control_answers()
        st.rerun()


def show_refusal(error: TollkeeperError) -> None:
    """Show why a change was not made, in the control plane's words, and the field at fault if it names one."""
    words = escaped(error.message[:1].upper() + error.message[1:])
    if error.param:
        words += f" (field: {escaped(error.param)})"
    if isinstance(error, ControlUnavailable):
        st.error(f"{words}.", icon=":material/cloud_off:")
    elif isinstance(error, AuthenticationFailed):
        st.error(f"{words}. Sign in again; what you typed is still here.", icon=":material/lock:")
    else:
        st.error(f"{words}.", icon=":material/error:")
