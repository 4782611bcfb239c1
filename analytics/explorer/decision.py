"""A request's routing decision: candidates with predictions, the choice, and the actual result."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica that could have answered. Its score is the predicted time to first token."""

    replica: str
    predicted_ms: float
    cached_tokens: int
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class RouteDecision:
    """A recorded routing decision. Only a sample of requests records candidates; `said` is the raw decision.

    `order`: the eligible entries of a route in order; `skipped`: the others, with the reason. `actual_ms`: actual time
    to first token; `regret_ms`: actual time minus the best prediction.
    """

    policy: str = ""
    prompt_tokens: int | None = None
    candidates: tuple[Candidate, ...] = ()
    actual_ms: float | None = None
    error_ms: float | None = None
    regret_ms: float | None = None
    order: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    said: Mapping[str, Any] = field(default_factory=dict)


def read_decision(text: str) -> RouteDecision:
    """Parse a record's decision. Empty or unreadable text (of old records) returns an empty decision."""
    try:
        said = json.loads(text) if text else {}
    except ValueError:
        said = {}
    if not isinstance(said, dict):
        return RouteDecision()
    replica, route = _object(said.get("replica")), _object(said.get("route"))
    predicted, cached = _object(replica.get("predicted_ms")), _object(replica.get("cached_tokens"))
    outcome = _object(replica.get("outcome"))
    away = _object(said.get("away"))
    return RouteDecision(
        policy=str(replica.get("policy", "")),
        prompt_tokens=_whole(replica.get("prompt_tokens")),
        candidates=tuple(
            Candidate(str(name), float(score), _whole(cached.get(name)) or 0, name == replica.get("chosen"))
            for name, score in predicted.items()
            if isinstance(score, int | float)
        ),
        actual_ms=_real(outcome.get("ttft_ms")),
        error_ms=_real(outcome.get("error_ms")),
        regret_ms=_real(outcome.get("regret_ms")),
        order=tuple(str(each) for each in _list(away.get("order")) or _list(route.get("order"))),
        skipped={str(name): str(reason) for name, reason in _object(route.get("skipped")).items()},
        said=said,
    )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
