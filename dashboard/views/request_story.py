"""One request: its stages in time, routing decision, attempts, cost, and the causes of slow tokens."""

from html import escape
from typing import Final
from uuid import UUID

import streamlit as st

from analytics.explorer.cost_lines import CostLine, cost_lines
from analytics.explorer.decision import RouteDecision
from analytics.explorer.single_request import SingleRequest, single_request
from analytics.explorer.slowest import SlowToken, SlowTokens
from analytics.explorer.waterfall import waterfall
from analytics.prices.card_list import card_list
from contracts.errors import InvalidRequest, LostInCrash
from dashboard import address
from dashboard.money_column import Money
from dashboard.own_requests import slowest_of_own
from dashboard.panels import Figure, note, panel, show_chart, show_figures, show_table
from dashboard.states import escaped
from dashboard.table import Table
from dashboard.theme import STATUS
from dashboard.views.request_charts import (
    CAUSES,
    candidate_bars,
    cause_bars,
    fall_chart,
    fall_frame,
    gap_chart,
    gap_frame,
    slow_frame,
)
from dashboard.views.request_usual import draw_usual
from dashboard.visit import Visit

_OUTCOMES: Final = {
    "ok": ("answered", "good"),
    "error": ("failed", "bad"),
    "rejected": ("refused", "warn"),
    "cancelled": ("client disconnected", "neutral"),
}
# Fields in the order of the table, by column.
_FACTS: Final = (
    *("requested_model", "model", "model_version", "route", "provider", "pool", "replica", "adapter", "region"),
    *(
        "gateway",
        "priority",
        "operation",
        "api",
        "finish_reason",
        "error_code",
        "limit_name",
        "cache",
        "gap_clock",
    ),
    *("count_method", "key_id", "project", "end_user", "conversation_id", "prompt_name", "prompt_version", "run_id"),
    *("upstream_error", "upstream_message", "trace_id"),
)


def draw_request(visit: Visit, named: str) -> None:
    """Draw one request by its id. Raises InvalidRequest if it is not an id, NotFound if it is not the viewer's."""
    st.button("All requests", icon=":material/arrow_back:", on_click=address.change, args=({"request": None},))
    try:
        identifier = UUID(named)
    except ValueError as error:
        raise InvalidRequest(f"{named!r} is not a request id; it is in the response header x-request-id") from error
    request = visit.read(single_request, identifier, visit.viewer.tenant, visit.viewer.team)
    slow = slowest_of_own(visit.viewer.access, request)
    _heading(visit, request)
    _failure(request)
    _figures(visit, request)
    _draw_fall(visit, request, slow)
    draw_usual(visit, request)
    _draw_slow(visit, request, slow)
    left, right = st.columns(2, gap="small")
    with left:
        _draw_cost(visit, request)
        _draw_gpu(visit, request)
    with right:
        _draw_decision(visit, request)
        _draw_tries(visit, request)
    _draw_facts(request)


def _heading(visit: Visit, request: SingleRequest) -> None:
    said, tone = _OUTCOMES[request.labels["outcome"]]
    if request.labels["error_code"] == LostInCrash.code:
        said = "lost in a crash of the gateway (usage and cost are estimates)"
    whose = " / ".join(part for part in (request.tenant, request.labels["team"], request.labels["project"]) if part)
    model = request.labels["model"] or request.labels["requested_model"] or "no model"
    where = f" on {request.labels['replica']}" if request.labels["replica"] else ""
    began = request.started_at.astimezone(visit.formats.zone)
    st.html(
        '<div style="display:flex;flex-wrap:wrap;gap:4px 18px;align-items:baseline">'
        f'<span style="font-weight:600;font-family:monospace">{request.request_id}</span>'
        f'<span style="font-weight:600;color:{STATUS[tone]}">● {said}, status {request.status}</span>'
        f"<span>{escape(whose)}</span><span>{escape(model)}{escape(where)}</span>"
        f"<span>{began:%-d %b %Y %H:%M:%S}.{began.microsecond // 1000:03d} "
        f"{escape(visit.formats.zone_name)}</span></div>"
    )


def _failure(request: SingleRequest) -> None:
    """Draw why the request failed: error code, and the target's status and message."""
    code, status = request.labels["error_code"], request.counts["upstream_status"]
    if not code or request.labels["outcome"] not in ("error", "rejected"):
        return
    said = [f"Error: **{escaped(code)}**."]
    where = f"Target {request.labels['replica']}" if request.labels["replica"] else "The target"
    if status is not None:
        kind = f" ({request.labels['upstream_error']})" if request.labels["upstream_error"] else ""
        said.append(f"{escaped(where)} answered with status **{status}**{escaped(kind)}.")
    elif request.labels["outcome"] == "error" and request.labels["replica"]:
        said.append(f"{escaped(where)} gave no HTTP answer.")
    if request.labels["upstream_message"]:
        said.append(f"Its message: “{escaped(request.labels['upstream_message'])}”")
    st.markdown(" ".join(said))


def _figures(visit: Visit, request: SingleRequest) -> None:
    formats, usage = visit.formats, request.usage
    cached = usage.cache_read_tokens or 0
    charged = request.charged_usd
    show_figures(
        [
            Figure("Duration", formats.duration(request.duration_ns), "to the end", "From its arrival to its end."),
            Figure(
                "First token",
                formats.duration(request.ttft_ns),
                "streamed" if request.is_streamed else "complete answer",
                "From its arrival to the first token passing the gateway.",
            ),
            Figure("Input", formats.count(usage.input_tokens), f"{formats.count(cached)} cached", "Prompt tokens."),
            Figure(
                "Output",
                formats.count(usage.output_tokens),
                f"counted: {request.labels['count_method']}",
                "Generated tokens, reasoning included, and how they were counted.",
            ),
            Figure(
                "Cost",
                formats.money(request.cost_usd),
                _priced_as(request),
                "At the price card valid when it ran. Budgets were charged "
                f"{'an unknown amount' if charged is None else formats.money(charged)}.",
            ),
            Figure(
                "GPU time",
                formats.duration(None if request.gpu is None else request.gpu.total_ns),
                "hosted by a provider" if request.gpu is None else request.gpu.method,
                "Its share of the time of the engine's steps.",
            ),
            Figure("Attempts", str(request.counts["attempts"]), "requested", "Number of attempts."),
        ]
    )


def _priced_as(request: SingleRequest) -> str:
    """Return the name of the price card, or which usage has no price and why."""
    if request.unpriced_leaves:
        return f"without {', '.join(request.unpriced_leaves)}: no price"
    tier = request.labels["service_tier"]
    reasons = {"failed": "failed: costs nothing", "unknown_usage": "usage unknown", "unpriced": "no price"}
    if request.labels["price_state"] == "unpriced" and tier:
        return f"no price for service tier {tier}"
    card = reasons.get(request.labels["price_state"]) or request.labels["price_version"] or "no price"
    return f"{card}, estimated" if request.labels["count_method"] == "estimate" and request.cost_usd else card


def _draw_fall(visit: Visit, request: SingleRequest, slow: SlowTokens) -> None:
    fall = waterfall(request)
    show_chart(
        "Time by stage",
        fall_chart(request, fall, slow, visit.formats),
        key="request_waterfall",
        unit="ms from its arrival",
        help="Admission: reading, keys, rules, limits. Gateway queue: its tenant's turn. Engine queue and cold start "
        "are reported by the engine. Prefill includes network time and failed attempts. Each mark is a token.",
        data=lambda: fall_frame(fall),
        alt="The request's time by stage, one row each, with a mark for every token",
    )
    if len(fall.token_ns) > 1:
        clock = "the engine's clock" if request.labels["gap_clock"] == "engine" else "their arrival at the gateway"
        show_chart(
            "Time before each token",
            gap_chart(fall, visit.formats),
            key="request_gaps",
            unit="ms",
            help=f"By {clock}, to 10 µs, without the first token, whose time is above. Tokens of one chunk have no "
            "time between them. The slowest token is marked.",
            data=lambda: gap_frame(fall),
        )


def _draw_slow(visit: Visit, request: SingleRequest, slow: SlowTokens) -> None:
    title = "Why its slowest tokens were slow"
    help = (
        "The time before each of the five slowest tokens, by what the engine did meanwhile. Own: computing for this "
        "request. Co-tenant prefill and decode: for other requests in the same steps. Preempted: the engine "
        "had removed this request from the batch. Host: the engine between steps. Outside: network, gateway, "
        "or another server."
    )
    if not slow.tokens:
        with panel(title, help=help):
            note("No token times were recorded for this request.")
        return
    if not slow.has_steps:
        with panel(title, help=help):
            why = (
                "Its engine's steps have expired (72 hours), or have not arrived yet."
                if request.is_of_engine
                else "A hosted provider answered it: no details are available."
            )
            slowest = slow.tokens[0]
            note(
                f"The slowest token was number {slowest.token + 1}: "
                f"{visit.formats.duration(slowest.waited_ns)} after the token before it. " + why
            )
        return
    show_chart(
        title,
        cause_bars(slow, visit.formats),
        key="request_causes",
        unit="ms",
        help=help,
        data=lambda: slow_frame(slow),
        alt="The time before each of the slowest tokens, by cause",
    )
    first = slow.tokens[0]
    name, _, said = CAUSES[first.main_cause]
    share = getattr(first.time, f"{first.main_cause}_ns") / first.waited_ns if first.waited_ns else None
    note(
        f"Token {first.token + 1} was the slowest, {visit.formats.duration(first.waited_ns)}: "
        f"{visit.formats.percent(share)} of it {name.lower()} ({said}). {_company(visit, first)}"
    )


def _company(visit: Visit, token: SlowToken) -> str:
    """Return how many other requests the engine served in that time, without their tenants."""
    if not token.others:
        return "The engine computed for no other request in that time."
    reading = f", up to {visit.formats.count(token.others_prefilling)} of them their prompts"
    others = visit.formats.counted(token.others, "other request")
    return f"It shared steps with up to {others}{reading if token.others_prefilling else ''}."


def _kind(line: CostLine) -> str:
    if line.leaf == "request":
        return "fee per request"
    return f"{line.leaf}, sold by the {line.unit}" if line.unit else line.leaf.replace("_", " ")


def _draw_cost(visit: Visit, request: SingleRequest) -> None:
    costs = cost_lines(request, visit.read_control(card_list, visit.viewer.tenant).cards)
    rows: list[dict[str, object]] = [
        {
            "Kind of usage": _kind(line),
            "Tokens": line.tokens,
            "Rate": None if line.usd_per_unit is None else float(line.usd_per_unit),
            "Cost": None if line.cost_usd is None else float(line.cost_usd),
        }
        for line in costs.lines
    ]
    if costs.rest_usd:
        is_known = any(line.cost_usd is not None for line in costs.lines)
        name = "not explained by the card" if is_known else "the price card is unknown"
        rows.append({"Kind of usage": name, "Tokens": None, "Rate": None, "Cost": float(costs.rest_usd)})
    number = st.column_config.NumberColumn
    if costs.missing:
        st.warning(costs.missing)
    show_table(
        "Cost, line by line",
        Table(rows, columns=["Kind of usage", "Tokens", "Rate", "Cost"]),
        key="request_cost",
        formats=visit.formats,
        help="Tokens by kind at the rates of its price card. What the card does not explain "
        "has its own line: a deleted card, a cached response's price, further attempts.",
        columns={
            "Tokens": number(format="localized"),
            "Rate": Money(4, "Per million tokens, or per the unit that it is sold by"),
            "Cost": Money(9, f"Sum: {visit.formats.money(costs.total_usd)}"),
        },
        empty="The usage is unknown, so the request has no cost. Unknown is not zero.",
    )


def _draw_gpu(visit: Visit, request: SingleRequest) -> None:
    gpu = request.gpu
    if gpu is None:
        return
    duration = visit.formats.duration
    with panel("GPU time", help="Its share of the engine's steps, by kind of work."):
        confidence = "" if gpu.confidence is None else f", confidence {gpu.confidence:.2f}"
        parts = (
            ("Prefill", gpu.prefill_ns),
            ("Decode", gpu.decode_ns),
            ("Recomputed", gpu.recompute_ns),
            ("Wasted", gpu.wasted_ns),
        )
        frame = Table(
            [
                {
                    "Phase": name,
                    "GPU time": duration(amount),
                    "Share": 100 * amount / gpu.total_ns if gpu.total_ns else None,
                }
                for name, amount in parts
            ]
        )
        st.dataframe(
            frame.as_arrow(),
            key="request_gpu",
            hide_index=True,
            lazy=False,
            column_config={
                "Share": st.column_config.ProgressColumn("Share %", format="%.1f", min_value=0, max_value=100)
            },
            alt="GPU time by phase",
        )
        blocks = "unknown" if gpu.kv_block_seconds is None else f"{gpu.kv_block_seconds:,.2f}"
        note(
            f"Total GPU time {duration(gpu.total_ns)}, method {gpu.method}{confidence}; KV cache held: {blocks} "
            "block-seconds (blocks × seconds)."
        )


def _draw_decision(visit: Visit, request: SingleRequest) -> None:
    decision = request.decision
    title, help = "Route decision", "Targets that the gateway compared, with predictions and scores."
    if decision.candidates:
        _draw_candidates(decision, title, help)
    other = {part: value for part, value in decision.said.items() if part not in ("replica", "route", "away")}
    if decision.candidates and not (decision.order or decision.skipped or other):
        return
    with panel(f"{title}: entries" if decision.candidates else title, help=help):
        if decision.order:
            st.markdown("In this order: " + ", ".join(f"**{escaped(name)}**" for name in decision.order))
        for name, reason in decision.skipped.items():
            st.markdown(f":gray[Not {escaped(name)}: {escaped(reason)}]")
        if other:
            st.json(other, expanded=1)
        if not decision.said:
            where = request.labels["replica"] or "nobody"
            st.markdown(f"Answered by **{escaped(where)}**.")
            note("Its alternatives were not recorded: the pool has one target, or the request is not in the sample.")


def _draw_candidates(decision: RouteDecision, title: str, help: str) -> None:
    """Draw the targets that were compared, the chosen one in full colour."""
    show_chart(
        f"{title}: policy {decision.policy}",
        candidate_bars(decision),
        key="request_candidates",
        unit="predicted ms to first token",
        help=f"{help} The score of a target is the time to the first token that was predicted for it; the chosen "
        "one is in full colour, the line is the actual time.",
        data=lambda: Table(
            [(one.replica, one.predicted_ms, one.cached_tokens, one.is_chosen) for one in decision.candidates],
            columns=["target", "predicted_ms", "cached_tokens", "is_chosen"],
        ),
    )
    if decision.regret_ms is not None:
        note(f"The best predicted target would have been {decision.regret_ms:,.1f} ms faster (regret).")


def _draw_tries(visit: Visit, request: SingleRequest) -> None:
    if not request.tries:
        return
    show_table(
        "Attempts",
        Table(
            [
                {
                    "No.": each.number,
                    "Reason": each.reason,
                    "Target": each.replica,
                    "Outcome": each.outcome + (f" {each.error_code}" if each.error_code else ""),
                    "Started": each.began_ns / 1e6,
                    "Duration": each.duration_ns / 1e6,
                    "Cost": None if each.cost_usd is None else float(each.cost_usd),
                }
                for each in request.tries
            ]
        ),
        key="request_tries",
        formats=visit.formats,
        columns={
            "Started": st.column_config.NumberColumn(
                "Started after ms", format="%.4g", help="From the arrival of the request"
            ),
            "Duration": st.column_config.NumberColumn("Duration ms", format="%.4g"),
            "Cost": Money(6),
        },
        help="Each target that was called, and why.",
    )


def _draw_facts(request: SingleRequest) -> None:
    rows = [(name.replace("_", " "), request.labels[name]) for name in _FACTS if request.labels[name]]
    rows += [(f"tag {name}", value) for name, value in sorted(request.tags.items())]
    rows += [(name.replace("_", " "), f"{value:,}") for name, value in request.counts.items() if value is not None]
    if request.verdicts:
        rows.append(("verdicts", ", ".join(request.verdicts)))
    show_table(
        "All other fields",
        Table(rows, columns=["Field", "Value"]),
        key="request_facts",
        help="The record as stored. It has no prompts and answers, and no fields that were not reported.",
    )
