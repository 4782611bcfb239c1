"""The routing page's tables: their rows, and what their columns mean."""

from collections.abc import Iterable, Sequence
from typing import Any, Final
from zoneinfo import ZoneInfo

import streamlit as st

from analytics.routing.regret import Decision, PolicyRegret
from analytics.routing.shares import EntryShare
from analytics.routing.targets import TargetLine
from dashboard.charts import group_name
from dashboard.formats import hundredths
from dashboard.gateway_state import GatewayState
from dashboard.table import Table

_number = st.column_config.NumberColumn
_text = st.column_config.TextColumn
_PERCENT: Final = "%.1f %%"
_MS: Final = "%.3g ms"

TARGET_COLUMNS: Final[dict[str, Any]] = {
    "Pool": _text(width="small", help="Interchangeable targets that serve a model"),
    "Target": _text(width="small", help="One replica, or one provider's account"),
    "State": _text(width="large", help="Now. Circuit open: it gets no requests until a probe succeeds"),
    "Requests": _number(format="localized", help="Requests that it answered, or failed as the last attempt"),
    "Of its pool": _number(format=_PERCENT, help="Share of its pool's requests"),
    "Errors": _number(format=_PERCENT, help="Share of its requests that ended in failure"),
    "Failed attempts": _number(
        format="localized", help="Of requests with several attempts; a single attempt that fails is in Errors"
    ),
    "Most frequent error": _text(help="Of failed attempts: error code (docs/errors.md) and upstream status"),
    "Prefix hits": _number(format=_PERCENT, help="Prompt tokens found in its cache, of those that were reported"),
    "Mean TTFT": _number(format=_MS, help="Mean time to first token, from the request's arrival at the gateway"),
    "In flight": _number(format="localized", help="The gateway's requests in progress there"),
    "Wait": _number(format=_MS, help="Predicted wait of a prompt that arrives now"),
    "Cache known": _text(
        help="exact: the host reports every cached block; assumed: estimated from the prompts sent there"
    ),
}
SHARE_COLUMNS: Final[dict[str, Any]] = {
    "Route": _text(width="small", help="The name that applications ask for"),
    "Leads to": _text(width="medium", help="The entry's model, or the route it leads on to"),
    "Role in route": _text(
        width="small",
        help="choose: by weight. fallback: if those fail. elsewhere: answered, but not in the route's current rules",
    ),
    "Weight": _number(help="As configured"),
    "Configured": st.column_config.ProgressColumn(
        format=_PERCENT, min_value=0, max_value=100, help="Share by weight, if all conditions hold"
    ),
    "Taken": st.column_config.ProgressColumn(
        format=_PERCENT, min_value=0, max_value=100, help="Share of the route's requests that it answered"
    ),
    "Requests": _number(format="localized", help="Requests of this route that its model answered"),
    "Errors": _number(format=_PERCENT, help="Share of these that failed"),
    "Condition": _text(help="Conditions of the entry; empty: always"),
}
REGRET_COLUMNS: Final[dict[str, Any]] = {
    "Pool": _text(width="small"),
    "Policy": _text(width="small", help="How the pool ranks its targets (docs/replicas.md)"),
    "Samples": _number(format="localized", help="Requests that recorded their alternatives"),
    "Not the fastest": _number(format=_PERCENT, help="Choices of a target other than the one predicted to be fastest"),
    "Mean regret": _number(format=_MS, help="Mean of actual time minus the best prediction"),
    "p95 regret": _number(format=_MS, help="95th percentile of the regret"),
    "Prediction error": _number(format=_MS, help="Mean absolute error of the prediction for the target that answered"),
    "Mean TTFT": _number(format=_MS, help="Mean time to first token of the samples"),
}
DECISION_COLUMNS: Final[dict[str, Any]] = {
    "When": st.column_config.DatetimeColumn(format="D MMM HH:mm:ss"),
    "Model": _text(width="small"),
    "Chosen": _text(width="small", help="What the policy chose"),
    "Answered": _text(width="small", help="The target that answered; another one if the chosen one failed"),
    "Prompt": _number(format="localized", help="Tokens of the prompt"),
    "Predicted": _number(format=_MS, help="Predicted time to first token of the chosen target"),
    "Best prediction": _number(format=_MS, help="The lowest prediction of all targets"),
    "Actual": _number(format=_MS, help="Time to first token"),
    "Regret": _number(format=_MS, help="Actual time minus the best prediction"),
    "Request": _text(help="Request id; search for it on the page Requests"),
}


def targets_frame(lines: Iterable[TargetLine], state: GatewayState | None, zone: ZoneInfo) -> Table:
    """Return a row per target; without the columns of the gateway's current state if `state` is `None`."""
    rows = []
    for line in lines:
        name = f"{line.pool}/{line.target}"
        row: dict[str, object] = {"Pool": group_name(line.pool), "Target": group_name(line.target)}
        if state is not None:
            row["State"] = _state(name, line.target, state, zone)
        row |= {
            "Requests": line.use.requests,
            "Of its pool": hundredths(line.pool_share),
            "Errors": hundredths(line.use.error_share),
            "Failed attempts": line.failed_tries,
            "Most frequent error": line.commonest_error,
            "Prefix hits": hundredths(line.use.cached_share),
            "Mean TTFT": None if line.use.mean_ttft_ns is None else line.use.mean_ttft_ns / 1e6,
        }
        if state is not None:
            replica = state.replicas.get(name)
            row |= {
                "In flight": None if replica is None else replica.running,
                "Wait": None if replica is None else replica.predicted_wait_ms,
                "Cache known": None if replica is None else replica.cache,
            }
        rows.append(row)
    frame = Table(rows)
    optional = [name for name in ("In flight", "Wait", "Cache known") if name in frame.columns]
    unknown = (name for name in optional if all(value is None for value in frame[name]))
    return frame.without(*unknown)  # a column only if known


def shares_frame(shares: Iterable[EntryShare]) -> Table:
    """Return a row per entry of each route."""
    return Table(
        [
            {
                "Route": one.route,
                "Leads to": group_name(one.name),
                "Role in route": one.role,
                "Weight": one.weight,
                "Configured": hundredths(one.stated_share),
                "Taken": hundredths(one.taken_share),
                "Requests": one.use.requests,
                "Errors": hundredths(one.use.error_share),
                "Condition": one.condition,
            }
            for one in shares
        ]
    )


def regret_frame(found: Iterable[PolicyRegret]) -> Table:
    """Return a row per pool and policy."""
    return Table(
        [
            {
                "Pool": group_name(one.pool),
                "Policy": one.policy,
                "Samples": one.samples,
                "Not the fastest": 100 * one.overruled / one.samples,
                "Mean regret": one.mean_ms,
                "p95 regret": one.p95_ms,
                "Prediction error": one.mean_missed_ms,
                "Mean TTFT": one.mean_ttft_ms,
            }
            for one in found
        ]
    )


def decisions_frame(decisions: Sequence[Decision], zone: ZoneInfo) -> Table:
    """Return a row per routing decision, with times in `zone`."""
    return Table(
        [
            {
                "When": one.at.astimezone(zone).replace(tzinfo=None),
                "Model": one.model,
                "Chosen": one.chosen,
                "Answered": one.answered_by,
                "Prompt": one.prompt_tokens,
                "Predicted": one.predicted_ms.get(one.chosen),
                "Best prediction": min(one.predicted_ms.values(), default=None),
                "Actual": one.ttft_ms,
                "Regret": one.regret_ms,
                "Request": one.request_id,
            }
            for one in decisions
        ]
    )


def changes_frame(state: GatewayState, zone: ZoneInfo) -> Table:
    """Return a row per circuit breaker change, latest first."""
    return Table(
        [
            {
                "When": change.at.astimezone(zone).replace(tzinfo=None),
                "Target": change.target,
                "Change": "circuit opened" if change.is_left_alone else "circuit closed",
                "Reason": change.why,
            }
            for change in reversed(state.changes)
        ]
    )


def _state(name: str, target: str, state: GatewayState, zone: ZoneInfo) -> str | None:
    if state.problem or not target:
        return None
    return circuit_words(name, state, zone) or "in use"


def circuit_words(name: str, state: GatewayState, zone: ZoneInfo) -> str:
    """Return since when and why a target's or provider's circuit is open; "" if it is closed."""
    away = state.away.get(name)
    if away is None:
        return ""
    if away.state == "resting":
        return f"paused for {away.seconds:.0f} s: it sent Retry-After"
    opened = None
    for (
        change
    ) in state.changes:  # oldest first: a failed probe opens the circuit again, which does not count as a new opening
        if change.target == name:
            opened = (opened or change) if change.is_left_alone else None
    since = "" if opened is None else f" since {opened.at.astimezone(zone):%H:%M:%S}"
    first = away.why if opened is None else opened.why
    probe = f"; next probe in {away.seconds:.0f} s" if away.seconds else "; a probe is due"
    return f"circuit open{since}: {first or 'failures'}{probe}"
