"""Texts of pages without data: no requests yet, nothing found, an invalid URL, an unreachable store.

Each states the situation in one sentence and offers the next step.
"""

import re
from typing import Final

import streamlit as st

from contracts.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ControlUnavailable,
    InvalidRequest,
    NewerSchema,
    NotFound,
    PermissionDenied,
    StoreUnavailable,
    TollkeeperError,
)
from dashboard import formats
from dashboard.filter_bar import clear_filters, set_range
from dashboard.filters import Filters
from dashboard.reader import settings

_FIRST_MODEL = "scripted-1"  # the model that a fresh installation serves, so that the example works as pasted


def show_first_steps() -> None:
    """Show that no request was recorded yet, and how to send the first one."""
    url = settings().public_gateway_url()
    with st.container(border=True):
        st.markdown("#### No requests yet")
        st.markdown("Point any OpenAI SDK at the gateway; its requests appear here within two seconds.")
        shell, python = st.tabs(["curl", "Python"])
        shell.code(
            f"""curl {url}/v1/chat/completions \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{{"model": "{_FIRST_MODEL}", "messages": [{{"role": "user", "content": "Hello"}}]}}'""",
            language="bash",
        )
        python.code(
            f"""from openai import OpenAI

client = OpenAI(base_url="{url}/v1")  # reads OPENAI_API_KEY
reply = client.chat.completions.create(
    model="{_FIRST_MODEL}", messages=[{{"role": "user", "content": "Hello"}}]
)
print(reply.choices[0].message.content)""",
            language="python",
        )
        st.caption(
            "`tollkeeper up` prints a key when it starts; `tollkeeper keys create` creates more. "
            f"A fresh installation serves `{_FIRST_MODEL}`; `GET {url}/v1/models` lists all that a key may use."
        )


def show_nothing_found(filters: Filters, covered: str, last_seen: str | None) -> None:
    """Show that the filters match no request, and offer wider ones."""
    whose = " of tenant " + quoted(filters.tenant) if filters.tenant else ""
    what = " to model " + quoted(filters.model) if filters.model else ""
    with st.container(border=True):
        st.markdown("#### Nothing in this range")
        st.markdown(f"No request{whose}{what} was recorded from {covered}.")
        if last_seen:
            st.caption(f"The last earlier request was on {last_seen} UTC.")
        with st.container(horizontal=True):
            if filters.range != "30d":
                st.button("Show the last 30 days", on_click=set_range, args=("30d",), key="widen_range")
            if filters.tenant:
                st.button("Show all tenants", on_click=clear_filters, args=("tenant",), key="widen_tenant")
            if filters.model:
                st.button("Show all models", on_click=clear_filters, args=("model",), key="widen_model")


def show_unknown(kind: str, value: str) -> None:
    """Show that no recorded request has the tenant or model in the URL."""
    with st.container(border=True):
        st.markdown(f"#### No requests of {kind} {quoted(value)}")
        st.markdown(
            f"No recorded request has this {kind}: it has not been used yet, the link is wrong, or you may not see it."
        )
        st.button(f"Show all {kind}s", on_click=clear_filters, args=(kind,), key=f"forget_{kind}")


def show_invalid(error: InvalidRequest) -> None:
    """Show which parameter of the URL is invalid."""
    with st.container(border=True):
        st.markdown("#### This view cannot be shown")
        st.markdown(sentence(f"{error.message}."))
        st.button("Show the last hour", on_click=clear_filters, key="reset_filters")


def show_failure(error: TollkeeperError, retry_seconds: int | None = None) -> None:
    """Show an error in place of the page, and what to do."""
    if isinstance(error, NotFound):
        show_not_found(error)
    elif isinstance(error, InvalidRequest):
        show_invalid(error)
    elif isinstance(error, PermissionDenied):
        show_forbidden(error)
    elif isinstance(error, AuthenticationFailed):
        show_signed_out()
    else:
        _show_outage(error, retry_seconds)


def _show_outage(error: TollkeeperError, retry_seconds: int | None) -> None:
    with st.container(border=True):
        if isinstance(error, StoreUnavailable):
            st.markdown("#### The telemetry store does not answer")
            st.markdown(
                "Requests are not affected: their records wait in the collector's spool and appear here, each once, "
                "when the store is back. Check that `python -m backends.store` runs, or see `tollkeeper doctor`."
            )
        elif isinstance(error, ControlUnavailable):
            st.markdown("#### The control plane does not answer")
            st.markdown("Requests are not affected, and nothing was changed. See `tollkeeper doctor`.")
        elif isinstance(error, NewerSchema):
            st.markdown("#### This dashboard is older than its database")
            st.markdown("A newer version has migrated the database. Install that version or a later one.")
        elif isinstance(error, ConfigurationError):
            st.markdown("#### This service is not set up for the dashboard")
            st.markdown("It answers, but a schema version, credential or setting is wrong:")
        else:
            st.markdown("#### The telemetry store cannot answer this")
            st.markdown("Its schema may belong to another version; `python -m migrations` updates it.")
        st.caption(escaped(error.message))
        with st.container(horizontal=True, vertical_alignment="center"):
            st.button("Try again", key="try_again")
            if retry_seconds:
                st.caption(f"This page retries every {formats.counted(retry_seconds, 'second')}.")


def show_failure_in_panel(error: TollkeeperError) -> None:
    """Show an error in one card; the rest of the page is still drawn."""
    if isinstance(error, PermissionDenied):
        st.caption(f":material/lock: You don't have access: {escaped(error.message)}.")
    else:
        st.caption(f":material/error: {sentence(error.message)}.")


def show_surprise() -> None:
    """Show that the page failed with an unexpected error."""
    with st.container(border=True):
        st.markdown("#### This page failed")
        st.markdown("The log has the reason (`dashboard` in the output of `tollkeeper up`). Other pages work.")
        st.button("Show it without filters", on_click=clear_filters, key="after_surprise")


def show_not_found(error: TollkeeperError) -> None:
    """Show that the object in the URL does not exist or is outside the viewer's access, without saying which."""
    with st.container(border=True):
        st.markdown("#### Not found")
        st.markdown(sentence(f"{error.message}."))
        st.button("Show all that I may see", on_click=clear_filters, key="reset_filters")


def show_forbidden(error: TollkeeperError) -> None:
    """Show that the viewer's role has no access."""
    with st.container(border=True):
        st.markdown("#### Your role has no access to this page")
        st.markdown(sentence(f"{error.message}."))
        st.caption("An administrator can change your role: `tollkeeper accounts grant`.")


def show_signed_out() -> None:
    """Show that the session has ended, with a link to sign in and return to this page."""
    with st.container(border=True):
        st.markdown("#### You are signed out")
        st.markdown("Your session has ended. Sign in again: the link keeps your view.")
        # A plain link: only an HTTP response can set the cookie, not a page run.
        st.html(f'<a href="{SIGN_IN_PATH}" target="_self">Sign in</a>')


_MARKUP: Final = r"\`*_{}[]<>()#+-!|$~:&="
_ADDRESS: Final = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?=@)", re.IGNORECASE)
_WORD_JOINER: Final = "\u2060"
SIGN_IN_PATH: Final = "/sign-in"


def quoted(name: str) -> str:
    """Return an external name in quotes, with its Markdown escaped."""
    return f"‘{escaped(name)}’"


def is_same_name(typed: str, name: str) -> bool:
    """Return whether the typed text is the name, also if it was copied with invisible escape characters."""
    return typed.replace(_WORD_JOINER, "") == name


def sentence(text: str) -> str:
    """Return an external message as escaped Markdown, with a capital first letter."""
    return escaped(text[:1].upper() + text[1:])


def escaped(text: str) -> str:
    """Escape external text for Markdown: it is shown literally, without markup, links or images.

    GitHub's Markdown links URLs even if their punctuation is escaped; an invisible character inside prevents that.
    """
    plain = _ADDRESS.sub(_WORD_JOINER, " ".join(text.split()))
    return "".join(f"\\{letter}" if letter in _MARKUP else letter for letter in plain)
