"""One session on the agents page: its turns and tool calls in order, with cost, cache hits and broken prefixes."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import streamlit as st

from analytics.agents.timeline import MOST_TURNS, Turn, session_turns
from analytics.prices.card_list import card_list
from contracts.errors import NotFound
from contracts.pricing.money import usd
from dashboard import address, charts
from dashboard.address import page_link
from dashboard.money_column import Money
from dashboard.panels import Figure, note, show_chart, show_figures, show_table
from dashboard.plot import Plot
from dashboard.table import Table
from dashboard.theme import GROUP_COLORS, STATUS
from dashboard.visit import Visit

_TURNS: Final = "agents_turns"
_CHOSEN: Final = "agents_turn"


def draw_session(visit: Visit, session: str) -> None:
    """Draw one session of the tenant and key in the URL. Raises NotFound if it has no request in the range."""
    _back()
    tenant = visit.viewer.tenant or address.get("of_tenant") or visit.scope.tenant or ""
    key = address.get("of_key") or ""
    cards = visit.read_control(card_list, visit.viewer.tenant)
    turns = visit.read(session_turns, visit.scope, tenant, key, session, cards)
    if not turns:
        raise NotFound(f"session {session[:100]!r} has no request in this range; choose a longer range")
    st.markdown(f"**Session** `{session.replace('`', '')}`")
    _figures(visit, turns)
    _chart(visit, turns)
    _table(visit, turns)
    chosen = st.session_state.get(_CHOSEN)
    if any(turn.request_id == chosen for turn in turns):
        page_link("requests", "Open this request", {"request": chosen}, icon=":material/open_in_new:")
    broken = [turn for turn in turns if turn.broken_by]
    if broken:
        _broken(visit, broken)
    if len(turns) == MOST_TURNS:
        note(f"Only the first {MOST_TURNS:,} requests of the session are shown.")


def _back() -> None:
    st.button(
        "All sessions",
        key="agents_back",
        icon=":material/arrow_back:",
        type="tertiary",
        on_click=address.change,
        args=({"session": None, "of_key": None, "of_tenant": None},),
    )


def _figures(visit: Visit, turns: Sequence[Turn]) -> None:
    formats = visit.formats
    asked = [turn for turn in turns if not turn.is_tool_call]
    tokens, cached = sum(turn.input_tokens for turn in asked), sum(turn.cached_tokens for turn in asked)
    saved = [turn.saved_usd for turn in asked if turn.saved_usd is not None]
    lost = sum(turn.lost_tokens for turn in asked)
    cost = sum((turn.cost_usd for turn in turns if turn.cost_usd is not None), usd(0))
    show_figures(
        [
            Figure(
                "Turns",
                formats.count(len(asked)),
                f"{formats.counted(sum(len(turn.tools) for turn in asked), 'tool call')}",
                "Requests to models, and the tools that their answers call.",
            ),
            Figure("Cost", formats.money(cost), f"{formats.money(cost / len(turns))} a request", "Priced requests."),
            Figure(
                "Prompt cache",
                formats.percent(cached / tokens if tokens else None),
                f"of {formats.count(tokens)} prompt tokens",
                "Prompt tokens that were read from the provider's cache.",
            ),
            Figure(
                "Saved by caches",
                formats.money(sum(saved, usd(0))) if saved else "—",
                "no price for cached tokens" if not saved else "minus the surcharge for writes",
                "Cost of the cached tokens as plain input, minus what they cost, at the price cards valid then.",
            ),
            Figure(
                "Prefix broken",
                formats.count(sum(1 for turn in asked if turn.broken_by)),
                f"{formats.counted(lost, 'token')} paid as new",
                "Turns that found less of their prompt in the cache than the previous turn had stored.",
                "warn" if lost else "good",
            ),
        ]
    )


def _chart(visit: Visit, turns: Sequence[Turn]) -> None:
    asked = [turn for turn in turns if not turn.is_tool_call]
    figure = Plot()
    places = [str(number) for number in range(1, len(asked) + 1)]
    words = [_hover(visit, turn) for turn in asked]
    for name, values, color in (
        ("cached", [turn.cached_tokens for turn in asked], GROUP_COLORS[2]),
        ("new", [turn.input_tokens - turn.cached_tokens for turn in asked], GROUP_COLORS[1]),
    ):
        figure.add_bar(
            x=places,
            y=values,
            name=name,
            customdata=words,
            hovertemplate="%{customdata}<extra></extra>",
            marker={"color": color},
        )
    broken = [number for number, turn in enumerate(asked) if turn.broken_by]
    if broken:
        figure.add_scatter(
            x=[places[number] for number in broken],
            y=[asked[number].input_tokens for number in broken],
            mode="markers",
            name="prefix broken",
            hoverinfo="skip",
            marker={"color": STATUS["bad"], "symbol": "x", "size": 9},
        )
    figure.update_layout(barmode="stack")
    figure = charts.style(figure)
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.12, "x": 0}, hovermode="closest")
    figure.update_xaxes(type="category", title="turn")
    show_chart(
        "Prompt by turn",
        figure,
        key="agents_prompt",
        unit="tokens",
        help="Prompt tokens of each turn, read from the provider's cache and new. A cross marks a turn whose prefix "
        "was no longer cached.",
        data=lambda: Table(
            {
                "turn": places,
                "cached": [turn.cached_tokens for turn in asked],
                "new": [turn.input_tokens - turn.cached_tokens for turn in asked],
            }
        ),
    )


def _hover(visit: Visit, turn: Turn) -> str:
    cost = "no price" if turn.cost_usd is None else visit.formats.money(turn.cost_usd)
    called = ", ".join(turn.tools[:5]) or "no tool"
    return f"{visit.formats.moment(turn.began)}<br>{called}<br>{cost}" + (
        f"<br>prefix broken: {turn.broken_by}" if turn.broken_by else ""
    )


def _table(visit: Visit, turns: Sequence[Turn]) -> None:
    show_table(
        "Timeline",
        Table(
            [
                {
                    "When": turn.began.astimezone(visit.viewer.zone),
                    "What": turn.model if turn.is_tool_call else f"turn of {turn.agent or 'the main agent'}",
                    "Model": "" if turn.is_tool_call else turn.model,
                    "Calls": ", ".join(turn.tools) if not turn.is_tool_call else "",
                    "Loop": f"{turn.repeats} times in a row" if turn.is_loop else "",
                    "Result": _result(turn),
                    "Prompt": turn.input_tokens,
                    "Cached": None if not turn.input_tokens else 100 * turn.cached_tokens / turn.input_tokens,
                    "Output": turn.output_tokens,
                    "Duration": turn.took_ns / 1e9,
                    "Cost": None if turn.cost_usd is None else float(turn.cost_usd),
                    "Saved": None if turn.saved_usd is None else float(turn.saved_usd),
                    "Prefix broken by": turn.broken_by,
                }
                for turn in turns
            ]
        ),
        key=_TURNS,
        columns={
            "When": st.column_config.DatetimeColumn(format="D MMM HH:mm:ss"),
            "Cached": st.column_config.NumberColumn(format="%.1f %%"),
            "Duration": st.column_config.NumberColumn(format="%.2f s"),
            "Cost": Money(6),
            "Saved": Money(6, "By cached tokens, minus the surcharge for writing", is_signed=True),
            "Prefix broken by": st.column_config.TextColumn(width="medium"),
        },
        formats=visit.formats,
        help="Requests of the session in order. Select a row to open its request.",
        on_select=partial(_open, list(turns)),
    )


def _result(turn: Turn) -> str:
    if turn.outcome == "ok":
        return f"ended by {turn.limit}" if turn.limit else turn.finish_reason or "ok"
    return f"{turn.status} {turn.error_code}"


def _broken(visit: Visit, turns: Sequence[Turn]) -> None:
    show_table(
        "Broken prefixes",
        Table(
            [
                {
                    "When": turn.began.astimezone(visit.viewer.zone),
                    "Agent": turn.agent or "main",
                    "Reason": turn.broken_by,
                    "Tokens paid as new": turn.lost_tokens,
                }
                for turn in turns
            ]
        ),
        key="agents_broken",
        columns={
            "When": st.column_config.DatetimeColumn(format="D MMM HH:mm:ss"),
            "Reason": st.column_config.TextColumn(width="large"),
        },
        help="Providers cache prompts by their prefix: tools, instructions, then messages. After an edit, all "
        "later parts are computed again.",
    )


def _open(turns: Sequence[Turn]) -> None:
    """Store the request of the selected row, for the link to it."""
    rows = st.session_state[_TURNS].selection.rows
    st.session_state[_CHOSEN] = turns[rows[0]].request_id if rows and rows[0] < len(turns) else None
