"""The playground: sends a prompt to a model or route with an API key, and shows answer, tokens, cost and times."""

import re
import time
from typing import Final
from uuid import UUID

import streamlit as st

from analytics.explorer.single_request import SingleRequest, single_request
from contracts.errors import NotFound
from dashboard import address
from dashboard.formats import UNKNOWN
from dashboard.page import EVERYONE, PEOPLE, Page
from dashboard.panels import Figure, note, panel, show_figures
from dashboard.playground_run import Playground, PlaygroundResult
from dashboard.reader import settings
from dashboard.states import escaped, sentence
from dashboard.visit import Visit

_TRIED: Final = "playground_tried"  # session key: the result of the last prompt
_TRIED_AT: Final = "playground_tried_at"
_WAIT_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 1.0
_KEY: Final = re.compile(r"[\x21-\x7e]{1,512}")  # the characters that an HTTP header can contain
_MAX_PROMPT: Final = 100_000


@st.cache_resource(show_spinner=False)
def _playground() -> Playground:
    """Return the shared client; creating one loads all CA certificates."""
    return Playground(settings().public_gateway_url())


def draw(visit: Visit) -> None:
    """Draw the form, the answer, and the request's tokens, cost and times."""
    with panel("Prompt", help="Sent to the gateway like an application's request: limits, budgets and prices apply."):
        key = st.text_input(
            "Key",
            key="playground_key",
            type="password",
            placeholder="tk-…",
            help="Its limits, budgets and allowed models apply. It is kept in this browser tab's session only.",
        ).strip()
        if not key:
            note("Enter a key to list its models. Create one on Admin > Keys, or with `tollkeeper keys create`.")
            return
        if _KEY.fullmatch(key) is None:
            st.error("A key has letters, digits and punctuation, without spaces.", icon=":material/error:")
            return
        models, problem = _playground().models(key)
        if problem or not models:
            said = problem or "this key may not use any model; create a model, or allow the key to use one"
            st.error(sentence(said), icon=":material/error:")
            return
        _form(key, models)
    tried: PlaygroundResult | None = st.session_state.get(_TRIED)
    if tried is not None:
        _outcome(visit, tried)


def _form(key: str, models: list[str]) -> None:
    named = address.get("model")
    with st.form("playground", border=False, enter_to_submit=False):
        first, second, third = st.columns([3, 1, 1])
        model = first.selectbox(
            "Model or route", models, index=models.index(named) if named in models else 0, key="playground_model"
        )
        most = second.number_input("Maximum output tokens", 1, 100_000, 256, key="playground_max_tokens")
        temperature = third.number_input("Temperature", 0.0, 2.0, 1.0, 0.1, key="playground_temperature")
        system = st.text_input("System message", key="playground_system", placeholder="none", max_chars=_MAX_PROMPT)
        prompt = st.text_area("Message", key="playground_prompt", height=120, max_chars=_MAX_PROMPT)
        is_sent = st.form_submit_button("Send", type="primary", icon=":material/send:")
    if not is_sent:
        return
    if not prompt.strip():
        st.warning("Write a message first.", icon=":material/edit:")
        return
    messages = [{"role": "system", "content": system}] if system.strip() else []
    body = {
        "model": model,
        "messages": [*messages, {"role": "user", "content": prompt}],
        "max_tokens": int(most),
        "temperature": float(temperature),
    }
    place = st.empty()

    def show(text: str) -> None:
        place.text(text)

    st.session_state[_TRIED] = _playground().ask(key, body, show)
    st.session_state[_TRIED_AT] = time.monotonic()
    place.empty()


def _outcome(visit: Visit, tried: PlaygroundResult) -> None:
    with panel("Answer"):
        if tried.text:
            st.text(tried.text)
        if tried.problem:
            said = sentence(tried.problem)
            status = f" (status {tried.status})" if tried.status else ""
            st.error(f"{said}{status}", icon=":material/error:")
        elif not tried.text:
            note("The answer has no text.")
        if tried.finish_reason == "length":
            note("Cut at the maximum number of output tokens.")
    record = _record(visit, tried)
    _figures(visit, tried, record)
    if tried.request_id:
        if record is not None and visit.viewer.role not in EVERYONE:
            note(f"Request {escaped(tried.request_id)}. My keys shows what your keys have used.")
        elif record is not None:
            address.page_link(
                "requests",
                "Open this request: stages, tokens, price and limits",
                {"request": tried.request_id},
                icon=":material/search:",
            )
        elif time.monotonic() - st.session_state[_TRIED_AT] < _WAIT_SECONDS:
            note(f"Request {escaped(tried.request_id)}. Its record and cost appear here within seconds.")
            st.fragment(lambda: _wait_for(visit, tried), run_every=_POLL_SECONDS)()
        else:
            note(f"Request {escaped(tried.request_id)} has no record that you can see: the key is of another tenant.")


def _figures(visit: Visit, tried: PlaygroundResult, record: SingleRequest | None) -> None:
    write = visit.formats
    cost = None if record is None else record.cost_usd
    about_cost = "of its record" if cost is not None else "pending" if record is None else "unpriced"

    def milliseconds(value: float | None) -> str:
        return UNKNOWN if value is None else f"{value:,.0f} ms"

    def tokens(value: int | None) -> str:
        return UNKNOWN if value is None else write.count(value)

    cached = f"{write.count(tried.cached_tokens)} from a cache" if tried.cached_tokens else ""
    show_figures(
        [
            Figure("Cost", UNKNOWN if cost is None else write.money(cost), about_cost, "At the model's price card"),
            Figure("Input tokens", tokens(tried.input_tokens), cached or "reported", "As reported in the response"),
            Figure(
                "Output tokens",
                tokens(tried.output_tokens),
                tried.finish_reason or "reported",
                "As reported in the response",
            ),
            Figure(
                "Time to first token",
                milliseconds(tried.first_token_ms),
                "measured by the dashboard",
                "From the dashboard to the gateway and back",
            ),
            Figure(
                "Total time",
                milliseconds(tried.total_ms),
                "measured by the dashboard",
                "From the dashboard to the gateway and back",
            ),
        ]
    )


def _record(visit: Visit, tried: PlaygroundResult) -> SingleRequest | None:
    """Return the request's record; `None` until it is in the store, or if the viewer may not see the key's tenant."""
    try:
        named = UUID(tried.request_id)
        return visit.read(single_request, named, visit.viewer.tenant, visit.viewer.team)
    except (ValueError, NotFound):
        return None


def _wait_for(visit: Visit, tried: PlaygroundResult) -> None:
    if _record(visit, tried) is not None or time.monotonic() - st.session_state[_TRIED_AT] >= _WAIT_SECONDS:
        st.rerun()


PLAYGROUND = Page(
    "Playground",
    "playground",
    ":material/chat:",
    draw,
    filters=(),
    is_live=False,
    roles=PEOPLE,
    about="Try a model or route with a key's limits: answer, cost, tokens and timing.",
)
