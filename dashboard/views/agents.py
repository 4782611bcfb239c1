"""The agents page: cost by session, repository and developer, loops, prompt caches; and the turns of one session."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

import streamlit as st

from analytics.agents.sessions import MOST_SESSIONS, GroupedBy, Session, agent_groups, agent_sessions
from analytics.attribution.saved import SavedReport, saved_report
from analytics.cost.question import CostQuestion
from analytics.prices.card_list import card_list
from contracts.pricing.money import usd
from dashboard import address
from dashboard.controls import segmented
from dashboard.formats import hundredths
from dashboard.money_column import Money
from dashboard.page import Page
from dashboard.panels import Figure, contained, note, show_figures, show_table
from dashboard.slow_answers import Pending
from dashboard.table import Table
from dashboard.views.agents_session import draw_session
from dashboard.visit import Visit

_KEPT_SECONDS: Final = 60.0
_SESSIONS: Final = "agents_sessions"
_GROUP_NAMES: Final[dict[str, str]] = {
    "repo": "Repository",
    "pr": "Pull request",
    "developer": "Developer",
    "agent": "Subagent",
    "tool": "Tools",
}
_ABOUT: Final = "Cost of coding agents by session, repository and developer; loops; prompt cache savings."
_EMPTY: Final = (
    "No agent sessions in this range. Claude Code, Codex and opencode send a session id themselves; "
    "other clients need the header x-tollkeeper-conversation-id."
)
_number: Final = st.column_config.NumberColumn
_text: Final = st.column_config.TextColumn


def draw(visit: Visit) -> None:
    """Draw the session that the URL names, else the totals of all sessions."""
    session = address.get("session")
    if session is not None:
        draw_session(visit, session)
        return
    sessions = _sessions(visit)
    if isinstance(sessions, Pending):
        note("Sessions are loading.")
        return
    if not sessions:
        note(_EMPTY)
        return
    _figures(visit, sessions)
    with contained():
        _groups(visit)
    _loops(visit, sessions)
    _list(visit, sessions)


def _sessions(visit: Visit) -> tuple[Session, ...] | Pending:
    return visit.read_counted(agent_sessions, keep_seconds=_KEPT_SECONDS)


def _figures(visit: Visit, sessions: Sequence[Session]) -> None:
    formats = visit.formats
    cost = sum((one.cost_usd for one in sessions), usd(0))
    tokens, cached = sum(one.input_tokens for one in sessions), sum(one.cached_tokens for one in sessions)
    loops = [one for one in sessions if one.loops]
    many = len(sessions) == MOST_SESSIONS
    figures = [
        Figure(
            "Sessions",
            f"{formats.count(len(sessions))}{'+' if many else ''}",
            formats.counted(len({one.developer for one in sessions}), "developer"),
            f"The {MOST_SESSIONS} most expensive sessions with a request in the range." if many else "With a request.",
        ),
        Figure(
            "Cost",
            formats.money(cost),
            f"{formats.money(cost / len(sessions))} a session",
            "Cost of the sessions' model requests and tool calls in the range.",
        ),
        Figure(
            "Prompt cache",
            formats.percent(cached / tokens if tokens else None),
            f"of {formats.count(tokens)} prompt tokens",
            "Share of prompt tokens that were read from providers' caches.",
        ),
        _saved(visit),
        Figure(
            "Loops",
            formats.count(len(loops)),
            f"{formats.money(sum((one.cost_usd for one in loops), usd(0)))} in these sessions",
            "Sessions that called the same tool with the same arguments at least three times in a row.",
            "bad" if loops else "good",
        ),
    ]
    show_figures(figures)


def _saved(visit: Visit) -> Figure:
    help_text = "Cost of cached tokens as plain input, minus their actual cost and the surcharge for cache writes."
    scope = visit.scope
    question = CostQuestion(
        scope.start.replace(microsecond=0),
        scope.end.replace(microsecond=0),
        tenant=scope.tenant,
        team=scope.team,
        model=scope.model,
    )
    cards = visit.read_control(card_list, visit.viewer.tenant)
    answer: SavedReport | Pending = visit.read_beside(saved_report, question, cards, keep_seconds=_KEPT_SECONDS)
    if isinstance(answer, Pending):
        return Figure("Saved by caches", "—", "loading", help_text)
    read = sum(one.read_tokens for one in answer.caches)
    value = visit.formats.money(usd(answer.caches_pico_usd))
    return Figure("Saved by caches", value, f"{visit.formats.count(read)} tokens read, all requests", help_text)


def _groups(visit: Visit) -> None:
    by = segmented("cost_by", "Cost by", tuple(_GROUP_NAMES), default="repo", format_func=_GROUP_NAMES.__getitem__)
    groups = visit.read_counted(agent_groups, cast(GroupedBy, by), keep_seconds=_KEPT_SECONDS)
    if isinstance(groups, Pending):
        note("Costs are loading.")
        return
    name = _GROUP_NAMES[by]
    show_table(
        f"Cost by {name.lower()}",
        Table(
            [
                {
                    name: one.name or "not stated",
                    "Cost": float(one.cost_usd),  # next to the name, because a phone shows only two columns
                    "Tenant": one.tenant,
                    "Sessions": one.sessions,
                    "Turns": one.turns,
                    "Prompt tokens": one.input_tokens,
                    "Cached": hundredths(one.cached_tokens / one.input_tokens if one.input_tokens else None),
                    "Output tokens": one.output_tokens,
                }
                for one in groups
            ]
        ),
        key="agents_groups",
        columns={
            name: _text(width="medium"),
            "Prompt tokens": _number(format="localized"),
            "Cached": _cached(),
            "Output tokens": _number(format="localized"),
            "Cost": Money(4, "Model requests and tool calls"),
        },
        formats=visit.formats,
        help="Rows sum to the cost of the sessions in the range. A turn that calls several tools is on a row of "
        "these tools together.",
    )


def _loops(visit: Visit, sessions: Sequence[Session]) -> None:
    found = sorted((one for one in sessions if one.loops), key=lambda one: -one.longest_run)
    if not found:
        return
    show_table(
        "Loops",
        Table(
            [
                {
                    "Session": one.id,
                    "Repeated calls": one.longest_run,
                    "Cost": float(one.cost_usd),
                    "Developer": one.developer,
                    "Repository": one.repo,
                    "Tool calls": one.tool_calls,
                    "Stopped by a limit": one.limited,
                }
                for one in found
            ]
        ),
        key="agents_loops",
        columns={"Tool calls": _tool_calls(), "Cost": Money(4)},
        formats=visit.formats,
        help="The same tool with the same arguments, three times in a row or more. To stop such "
        "sessions, create a limit with level `conversation` (docs/agents.md).",
        on_select=partial(_choose, "agents_loops", found),
    )


def _list(visit: Visit, sessions: Sequence[Session]) -> None:
    show_table(
        "Sessions",
        Table(
            [
                {
                    "Last turn": one.last.astimezone(visit.viewer.zone),
                    "Session": one.id,
                    "Cost": float(one.cost_usd),
                    "Developer": one.developer,
                    "Repository": one.repo,
                    "Branch": one.branch,
                    "PR": one.pull_request,
                    "Turns": one.turns,
                    "Tool calls": one.tool_calls,
                    "Subagents": one.subagents,
                    "Failed": one.failed,
                    "Prompt tokens": one.input_tokens,
                    "Cached": hundredths(one.cached_share),
                    "No price": one.unpriced,
                    "Models": ", ".join(one.models),
                }
                for one in sessions
            ]
        ),
        key=_SESSIONS,
        columns={
            "Last turn": st.column_config.DatetimeColumn(format="D MMM HH:mm"),
            "Tool calls": _tool_calls(),
            "Prompt tokens": _number(format="localized"),
            "Cached": _cached(),
            "Cost": Money(4, "Model requests and tool calls in the range"),
            "No price": _number(format="localized", help="Requests without a full price"),
        },
        formats=visit.formats,
        help="Most expensive first. Select a row to see its turns.",
        on_select=partial(_choose, _SESSIONS, list(sessions)),
    )


def _choose(table: str, sessions: Sequence[Session]) -> None:
    """Open the session of the selected row; `sessions` are the rows as drawn."""
    rows = st.session_state[table].selection.rows
    if rows and rows[0] < len(sessions):
        one = sessions[rows[0]]
        address.change({"session": one.id, "of_key": one.key_id, "of_tenant": one.tenant})


def _tool_calls() -> Any:
    return _number(format="localized", help="Tool calls in the model's answers")


def _cached() -> Any:
    return _number(format="%.1f %%", help="Prompt tokens read from providers' caches")


AGENTS = Page(
    "Agents", "agents", ":material/smart_toy:", draw, filters=("range", "tenant", "team", "model"), about=_ABOUT
)
