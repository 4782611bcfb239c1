"""Converts a request to JSON types, as `tollkeeper request show --json` prints it."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from decimal import Decimal

from msgspec import structs

from analytics.attribution.slow_token import TokenTime
from analytics.explorer.cost_lines import CostLines
from analytics.explorer.single_request import SingleRequest, Try
from analytics.explorer.slowest import SlowToken, SlowTokens
from analytics.explorer.waterfall import waterfall


def request_as_json(request: SingleRequest, costs: CostLines, slow: SlowTokens | None) -> dict[str, object]:
    """Return all details of a request. Money is decimal text; times are nanoseconds from its arrival.

    `slow` is `None` if the caller may not see engine data.
    """
    fall = waterfall(request)
    return {
        "request_id": str(request.request_id),
        "started_at": request.started_at.isoformat(),
        "duration_ns": request.duration_ns,
        "status": request.status,
        "stream": request.is_streamed,
        **{name: value or None for name, value in request.labels.items()},
        "tags": dict(request.tags),
        **request.counts,
        "temperature": request.temperature,
        "verdicts": list(request.verdicts),
        "schema_failed": request.schema_failed,
        "ttft_ns": request.ttft_ns,
        "usage": structs.asdict(request.usage),
        "cost": _costs(request, costs),
        "gpu": None if request.gpu is None else {**asdict(request.gpu), "total_ns": request.gpu.total_ns},
        "waterfall": [{"stage": span.stage, "begin_ns": span.begin_ns, "end_ns": span.end_ns} for span in fall.spans],
        "token_ns": list(fall.token_ns),
        "attempts_made": _tries(request.tries),
        "decision": dict(request.decision.said) or None,
        "slowest_tokens": None if slow is None else [_slow(token) for token in slow.tokens],
        "has_engine_steps": None if slow is None else slow.has_steps,
    }


def _costs(request: SingleRequest, costs: CostLines) -> dict[str, object]:
    return {
        "total_usd": _text(costs.total_usd),
        "charged_usd": _text(request.charged_usd),
        "basis": request.labels["cost_basis"] or None,
        "price_version": request.labels["price_version"] or None,
        "service_tier": request.labels["service_tier"] or None,
        "unpriced_leaves": list(request.unpriced_leaves),
        "missing": costs.missing or None,
        "lines": [
            {
                "kind": line.leaf,
                "tokens": line.tokens,
                "usd_per_mtok": _text(line.usd_per_mtok),
                "unit": line.unit or None,
                "usd_per_unit": _text(line.usd_per_unit) if line.unit else None,
                "cost_usd": _text(line.cost_usd),
            }
            for line in costs.lines
        ],
        "rest_usd": _text(costs.rest_usd),
    }


def _tries(tries: Sequence[Try]) -> list[dict[str, object]]:
    return [{**asdict(each), "cost_usd": _text(each.cost_usd)} for each in tries]


def _slow(token: SlowToken) -> dict[str, object]:
    return {
        "token": token.token,
        "waited_ns": token.waited_ns,
        "main_cause": token.main_cause,
        **{one.name: getattr(token.time, one.name) for one in fields(TokenTime)},
        "others": token.others,
        "others_prefilling": token.others_prefilling,
    }


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")
