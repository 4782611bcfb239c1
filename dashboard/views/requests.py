"""The requests page: search, filter and sort single requests, and open one to see its details."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, cast

import streamlit as st

from analytics.explorer.found import FoundPage, MatchesOverTime, count_matches, find_requests
from analytics.explorer.question import MAX_PAGES, OUTCOMES, PAGE_ROWS, SORTS, RequestQuestion, Sort, read_outcome
from analytics.explorer.search import read_search
from contracts.errors import InvalidRequest
from contracts.recording.records import Outcome
from dashboard import address, charts, states
from dashboard.controls import select, text
from dashboard.money_column import Money
from dashboard.page import Page
from dashboard.panels import note, show_chart, show_table
from dashboard.slow_answers import Pending
from dashboard.table import Table
from dashboard.theme import STATUS
from dashboard.views.request_story import draw_request
from dashboard.views.saved_views import draw_saved_views
from dashboard.views.time_charts import Line, line_frame, stacked_bars
from dashboard.visit import Visit

_OUTCOME_COLORS: Final[dict[Outcome, str]] = {
    "ok": STATUS["good"],
    "error": STATUS["bad"],
    "rejected": STATUS["warn"],
    "cancelled": STATUS["neutral"],
}
_OUTCOME_NAMES: Final[dict[str, str]] = {
    "": "All outcomes",
    "ok": "answered",
    "error": "failed",
    "rejected": "refused",
    "cancelled": "client disconnected",
}
_SORT_NAMES: Final[dict[str, str]] = {
    "newest": "Newest first",
    "ttft": "Slowest first token",
    "duration": "Longest",
    "cost": "Most expensive",
    "tokens": "Most tokens",
}
# Predefined views for everyone, by name: their URL parameters. Viewers can save others.
_VIEWS: Final[dict[str, dict[str, str | None]]] = {
    "All": {"q": None, "outcome": None, "sort": None},
    "Failed": {"q": None, "outcome": "error", "sort": None},
    "Refused": {"q": None, "outcome": "rejected", "sort": None},
    "Slow first token": {"q": None, "outcome": None, "sort": "ttft"},
    "Retried": {"q": "attempts>1", "outcome": None, "sort": None},
    "Most expensive": {"q": None, "outcome": None, "sort": "cost"},
}
_LONG_SECONDS: Final = 60
_SEARCH_HELP: Final = (
    "A request's or trace's id; part of a model, team, project, error, prompt, end user, conversation or run; or "
    "name:value with route, provider, replica, error, model, user, conversation, run, prompt, project, key, status, "
    "upstream_status, trace or "
    "tag.NAME; ttft>500ms, duration>2s, attempts>1. All must match."
)


def draw(visit: Visit) -> None:
    """Draw the request that the URL names, else the list."""
    named = address.get("request")
    if named is not None:
        draw_request(visit, named)
        return
    question = _asked(visit)
    is_long = visit.scope.grain != "minute"
    looks_at_all = question.sort != "newest" or question.search.word is not None
    if is_long and looks_at_all:
        answer = visit.read_slow(find_requests, question, keep_seconds=_LONG_SECONDS)
    else:
        answer = visit.read(find_requests, question)
    if isinstance(answer, Pending):
        note("All requests of the range are being searched …")
        return
    if not answer.requests and question.page == 1 and not visit.seen("tenant"):
        states.show_first_steps()
        return
    if is_long:
        matches = visit.read_slow(count_matches, replace(question, page=1), answer.searched, keep_seconds=_LONG_SECONDS)
    else:
        matches = visit.read(count_matches, question, answer.searched)
    if isinstance(matches, Pending):
        note("Loading …")
        _draw_table(visit, answer, None)
    else:
        _draw_matches(visit, matches)
        _draw_table(visit, answer, matches.total)


def _asked(visit: Visit) -> RequestQuestion:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        typed = text(
            "q", "Search", placeholder="Search: user:alice upstream_status:503 ttft>500ms", help=_SEARCH_HELP, width=340
        )
        outcome = select(
            "outcome", "Outcome", ("", *OUTCOMES), default="", format_func=_OUTCOME_NAMES.__getitem__, width=150
        )
        sort = select("sort", "Order", SORTS, default="newest", format_func=_SORT_NAMES.__getitem__, width=180)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(":gray[Views]", width="content")
        for name, wanted in _VIEWS.items():
            st.button(
                name,
                key=f"view_{name}",
                type="tertiary",
                on_click=address.change,
                args=({**wanted, "p": None},),
                help="Show this view",
            )
        draw_saved_views(visit)
    scope = visit.scope
    if scope.grain != "minute":  # the same query during a minute, so that its result is cached
        end = scope.end.replace(second=0, microsecond=0) + timedelta(minutes=1)
        scope = replace(scope, start=scope.start.replace(second=0, microsecond=0), end=end)
    return RequestQuestion.of(scope, read_search(typed), read_outcome(outcome), cast(Sort, sort), _page())


def _page() -> int:
    written = address.get("p") or "1"
    if not (written.isascii() and written.isdigit() and len(written) <= len(str(MAX_PAGES))):
        raise InvalidRequest(f"{written!r} is not a page; pages are 1 to {MAX_PAGES}", param="p")
    return int(written)


def _draw_matches(visit: Visit, matches: MatchesOverTime) -> None:
    drawn = [
        Line(
            _OUTCOME_NAMES[outcome],
            matches.outcomes[outcome],
            _OUTCOME_COLORS[outcome],
            [visit.formats.count(count) for count in matches.outcomes[outcome]],
        )
        for outcome in ("ok", "cancelled", "rejected", "error")
        if outcome in matches.outcomes
    ]
    figure = stacked_bars(matches.steps, drawn, visit.formats.zone)
    figure.update_layout(height=150)
    show_chart(
        f"{visit.formats.counted(matches.total, 'request')}",
        figure,
        key="requests_over_time",
        unit=f"per {charts.step_name(matches.step)}",
        help="All matching requests by outcome and start. Same number as `tollkeeper request find`.",
        data=lambda: line_frame(matches.steps, drawn),
    )


def _draw_table(visit: Visit, answer: FoundPage, total: int | None) -> None:
    page = answer.question.page
    frame = list_frame(visit, answer)
    first = (page - 1) * PAGE_ROWS
    title = f"{first + 1:,} to {first + len(frame):,} of {visit.formats.count(total)}" if len(frame) else "Requests"
    key = f"requests_list_{page}"
    show_table(
        title,
        frame,
        key=key,
        columns=_columns(),
        formats=visit.formats,
        help="Select a row to see where its time and cost went.",
        on_select=partial(_open_row, key, [str(one.request_id) for one in answer.requests]),
        data=lambda: Table([one.as_json() for one in answer.requests]),
        empty="No request matches. Remove a search term or widen the time range.",
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            "Previous",
            icon=":material/chevron_left:",
            disabled=page == 1,
            on_click=address.change,
            args=({"p": str(page - 1) if page > 2 else None},),
            key="requests_back",
        )
        st.button(
            "Next",
            icon=":material/chevron_right:",
            disabled=not answer.has_more or page == MAX_PAGES,
            on_click=address.change,
            args=({"p": str(page + 1)},),
            key="requests_on",
        )
        note(f"Page {page}. {PAGE_ROWS} to a page; — means not measured, not reported or not priced.")


def _open_row(key: str, ids: Sequence[str]) -> None:
    """Open the selected row; `ids` are the rows as drawn, because the list may have changed since."""
    rows = st.session_state[key].selection.rows
    if rows and rows[0] < len(ids):
        address.change({"request": ids[rows[0]]})


def list_frame(visit: Visit, answer: FoundPage) -> Table:
    """Return a row per request: start in the viewer's time zone, durations in milliseconds; `None` if unknown."""
    zone = visit.formats.zone
    return Table(
        [
            {
                "Started": f"{one.started_at.astimezone(zone):%-d %b %H:%M:%S}",
                "Outcome": _OUTCOME_NAMES[one.outcome] + (f" {one.status}" if one.outcome != "ok" else ""),
                "Tenant": one.tenant,
                "Team": one.team or None,
                "Model": one.model or one.requested_model,
                "Finish or error": one.error_code or one.finish_reason or None,
                "Duration": one.duration_ns / 1e6,
                "TTFT": None if one.ttft_ns is None else one.ttft_ns / 1e6,
                "In": one.input_tokens,
                "Out": one.output_tokens,
                "Cost": None if one.cost_usd is None else float(one.cost_usd),
                "Attempts": one.attempts,
                "User": one.end_user or None,
            }
            for one in answer.requests
        ]
    )


def _columns() -> dict[str, Any]:
    number, words = st.column_config.NumberColumn, st.column_config.TextColumn
    return {
        "Started": words(help="When it reached the gateway, in your time zone"),
        "Outcome": words(help="Outcome, and the status if it was not answered", width="small"),
        "Tenant": words(width="small"),
        "Team": words(width="small"),
        "Model": words(help="The model that answered, else the requested one"),
        "Finish or error": words(
            help="Why the answer ended, such as stop or length; or the error's code (docs/errors.md)"
        ),
        "Duration": number("Duration ms", format="%.4g", help="From its arrival to the end of its answer"),
        "TTFT": number("TTFT ms", format="%.4g", help="From its arrival to its first token"),
        "In": number("In tokens", format="localized", help="Prompt tokens, cached ones included"),
        "Out": number("Out tokens", format="localized", help="Generated tokens, reasoning included"),
        "Cost": Money(6, "At the price valid then; empty means unpriced, not free"),
        "Attempts": number(format="%d", help="Number of attempts"),
        "User": words("End user", help="The end user that the application named"),
    }


REQUESTS = Page(
    "Requests",
    "requests",
    ":material/list_alt:",
    draw,
    filters=("range", "tenant", "team", "model"),
    is_live=False,
    about="Search single requests, and open one to see its time and cost.",
)
