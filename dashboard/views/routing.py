"""The routing page: requests by target, additional attempts, prefix cache hits, and quality of routing decisions."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

import streamlit as st

from analytics.routing.board import RoutingBoard, routing_board
from analytics.routing.shares import entry_shares
from analytics.routing.targets import target_lines
from analytics.routing.tries import further_by_reason, lost_usd
from analytics.routing.use import total_of
from dashboard import states
from dashboard.address import page_link
from dashboard.gateway_state import GatewayState, read_gateway_state
from dashboard.page import Page
from dashboard.panels import Figure, contained, note, panel, show_chart, show_figures, show_table
from dashboard.slow_answers import Pending
from dashboard.table import Table
from dashboard.viewer import ADMINS
from dashboard.views.routing_charts import (
    breaker_history,
    failed_tries,
    failed_tries_frame,
    hits_frame,
    hits_over_time,
    prediction_bars,
    reasons,
)
from dashboard.views.routing_rollouts import draw_rollouts
from dashboard.views.routing_tables import (
    DECISION_COLUMNS,
    REGRET_COLUMNS,
    SHARE_COLUMNS,
    TARGET_COLUMNS,
    changes_frame,
    decisions_frame,
    regret_frame,
    shares_frame,
    targets_frame,
)
from dashboard.visit import Visit

_KEPT_SECONDS: Final = 60.0
_DECISIONS: Final = "routing_decisions"
_CHOSEN: Final = "routing_chosen"
_ABOUT = "Traffic, failures and additional attempts by target, and the quality of routing decisions."


def draw(visit: Visit) -> None:
    """Draw key figures, targets, attempts, circuits, routes, rollouts and routing decisions."""
    board = _board(visit)
    if isinstance(board, Pending):
        note("Attempts and routing decisions are loading.")
        return
    # Targets belong to the installation: viewers of one tenant see its requests, but not the state of targets.
    state = read_gateway_state() if visit.viewer.tenant is None else None
    _figures(visit, board, state)
    if board.is_empty:
        note("No request reached a target in this range. Widen the time range, or send a request.")
    else:
        _targets(visit, board, state)
        _over_time(visit, board)
    if state is not None:
        _breakers(visit, board, state)
    if not board.is_empty:
        _routes(visit, board)
    if visit.viewer.tenant is None and visit.viewer.role in ADMINS:
        with contained():
            draw_rollouts(visit)
    if not board.is_empty:
        _choices(visit, board)


def _board(visit: Visit) -> RoutingBoard | Pending:
    """Read the page's data from single requests; in the background for more than a day."""
    return visit.read_counted(routing_board, keep_seconds=_KEPT_SECONDS)


def _figures(visit: Visit, board: RoutingBoard, state: GatewayState | None) -> None:
    formats, total = visit.formats, total_of(board.lines)
    further = further_by_reason(board.tries)
    figures = [
        Figure(
            "Sent to a target",
            formats.count(total.requests),
            f"{formats.percent(total.error_share)} failed",
            "Requests that were sent to a target, without cache hits and refusals.",
        ),
        Figure(
            "Requests with more than one attempt",
            formats.percent(total.retried_share),
            f"{formats.counted(total.retried, 'request')}",
            "Share of these requests with a retry, fallback, hedge or continuation.",
        ),
        Figure(
            "Additional attempts",
            formats.count(sum(further.values())),
            ", ".join(f"{formats.count(count)} {reason}" for reason, count in list(further.items())[:2]) or "none",
            "Attempts after a request's first, by reason.",
        ),
        Figure(
            "Failed attempts",
            formats.count(board.failed_tries),
            f"cost {formats.money(lost_usd(board.tries))}",
            "Failed attempts of requests with several attempts, and their cost as far as targets reported it.",
        ),
        Figure(
            "Prefix hits",
            formats.percent(total.cached_share),
            f"of {formats.count(total.input_tokens)} prompt tokens",
            "Prompt tokens that a target found in its cache, of all prompt tokens that were reported.",
        ),
        Figure(
            "Mean regret",
            formats.duration(None if board.mean_regret_ms is None else board.mean_regret_ms * 1e6),
            f"{formats.counted(board.samples, 'choice')} sampled",
            "Additional time to first token compared with the best predicted target, sampled for 1 % of requests.",
        ),
    ]
    if state is not None:
        figures.append(_open_circuits(visit, state))
    show_figures(figures)


def _open_circuits(visit: Visit, state: GatewayState) -> Figure:
    text = "Targets that get no requests now: circuit open, or paused by Retry-After."
    if state.problem:
        return Figure(
            "Open circuits", "—", "gateway not reached", f"{text} Unknown: {states.escaped(state.problem)}.", "warn"
        )
    count = len(state.away)
    beside = ", ".join(list(state.away)[:2]) or "all targets in use"
    return Figure("Open circuits", visit.formats.count(count), beside, text, "bad" if count else "good")


def _targets(visit: Visit, board: RoutingBoard, state: GatewayState | None) -> None:
    show_table(
        "Targets",
        targets_frame(target_lines(board), state, visit.viewer.zone),
        key="routing_targets",
        columns=TARGET_COLUMNS,
        help="Every target that answered or failed in the range. State, in flight and wait "
        "are current; the rest is for the range.",
    )


def _over_time(visit: Visit, board: RoutingBoard) -> None:
    zone = visit.viewer.zone
    left, middle, right = st.columns([5, 5, 3], gap="small")
    with left:
        show_chart(
            "Failed attempts",
            failed_tries(board, zone),
            key="routing_failed_tries",
            unit="by target",
            help="Failed attempts of requests with several attempts.",
            data=lambda: failed_tries_frame(board),
        )
    with middle:
        show_chart(
            "Prefix hits",
            hits_over_time(board, zone),
            key="routing_prefix_hits",
            unit="% of prompt tokens, by pool",
            help="Prompt tokens found in targets' caches, of all whose count was reported.",
            data=lambda: hits_frame(board),
        )
    with right:
        counts = further_by_reason(board.tries)
        show_chart(
            "Additional attempts",
            reasons(counts),
            key="routing_reasons",
            unit="by reason",
            help="fallback: another target or model. retry: again after a pause. hedge: a second target in "
            "parallel. continuation: an answer continued elsewhere. escalation: a better model in a cascade.",
            data=lambda: Table({"reason": list(counts), "tries": list(counts.values())}),
        )


def _breakers(visit: Visit, board: RoutingBoard, state: GatewayState) -> None:
    if state.problem:
        with panel("Circuit breakers", help="When targets' circuits were open."):
            note(f"State unknown: {states.escaped(state.problem)}.")
        return
    if not state.changes:
        with panel("Circuit breakers", help="When targets' circuits were open."):
            note("No circuit has opened since the gateway started.")
        return
    changes = changes_frame(state, visit.viewer.zone)
    left, right = st.columns([3, 2], gap="small")
    end = min(board.scope.end, visit.now)
    with left:
        show_chart(
            "Circuit breakers",
            breaker_history(state, _start(board), end, visit.viewer.zone),
            key="routing_breakers",
            unit="when circuits were open",
            help="A breaker opens after consecutive failures, a high share of failures, or answers much slower than "
            "the others', and closes after a successful probe. State of one gateway since its start.",
            data=lambda: changes,
        )
    with right:
        show_table(
            "Last changes",
            changes,
            key="routing_changes",
            help="Latest first; the reason is the last failure before the change.",
            columns={"When": st.column_config.DatetimeColumn(format="D MMM HH:mm:ss")},
        )


def _start(board: RoutingBoard) -> datetime:
    return board.scope.covered.start


def _routes(visit: Visit, board: RoutingBoard) -> None:
    with contained():
        shares = entry_shares(board, visit.control.get_all("/v1/routes"))
        if not shares:
            with panel("Canaries and weights", help="Routes share requests between models by weight."):
                note("No routes: applications ask for models directly. Create routes on Admin > Routes.")
            return
        show_table(
            "Canaries and weights",
            shares_frame(shares),
            key="routing_shares",
            columns=SHARE_COLUMNS,
            help="Configured and actual share of each entry of a route. They differ if "
            "conditions did not hold, a fallback answered, or weights changed in the range. `elsewhere`: a model "
            "that answered, but is not in the route's current rules.",
        )


def _choices(visit: Visit, board: RoutingBoard) -> None:
    if not board.regret:
        with panel("Regret", help="Quality of the choice between targets."):
            note(
                "No sampled choice in this range. One request in a hundred records its alternatives, "
                "if the pool has several targets (TOLLKEEPER_ROUTING_SAMPLE_SHARE)."
            )
        return
    show_table(
        "Regret by pool",
        regret_frame(board.regret),
        key="routing_regret",
        columns=REGRET_COLUMNS,
        help="Regret: actual time minus the best prediction, if above 0. Part of it is prediction error.",
    )
    left, right = st.columns([3, 2], gap="small")
    zone = visit.viewer.zone
    with left:
        show_table(
            "Choices with the highest regret",
            decisions_frame(board.decisions, zone),
            key=_DECISIONS,
            columns=DECISION_COLUMNS,
            help="Select a row to see the prediction for each target.",
            on_select=partial(_choose_row, [one.request_id for one in board.decisions]),
        )
    chosen = st.session_state.get(_CHOSEN)
    decision = next((one for one in board.decisions if one.request_id == chosen), board.decisions[0])
    with right:
        show_chart(
            "Predictions of the selected choice",
            prediction_bars(decision),
            key="routing_alternatives",
            unit="ms to first token",
            help="Prediction for each target when the request arrived, the chosen one in full colour; "
            "the line is the actual time.",
            data=lambda: Table(
                {"target": list(decision.predicted_ms), "predicted_ms": list(decision.predicted_ms.values())}
            ),
        )
        page_link("requests", "Open its request", {"request": decision.request_id}, icon=":material/open_in_new:")


def _choose_row(ids: Sequence[str]) -> None:
    """Store the request of the selected row; `ids` are the rows as drawn, because a relative range moves them."""
    rows = st.session_state[_DECISIONS].selection.rows
    st.session_state[_CHOSEN] = ids[rows[0]] if rows and rows[0] < len(ids) else None


ROUTING = Page(
    "Routing", "routing", ":material/alt_route:", draw, filters=("range", "tenant", "team", "model"), about=_ABOUT
)
