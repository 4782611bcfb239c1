"""The observation of a settled request for its rollout arm."""

from typing import Final

from algorithms.rollouts.rollout_tally import ObservedRequest
from contracts.errors import ClientGone, HedgeLost, Shutdown, UpstreamError
from contracts.metering.gaps import GAP_UNIT_NS
from gateway.request.attempt import Attempt
from gateway.request.request_state import RequestState
from gateway.routing.routes.refusal import begins_as_refusal

_MOST_GAPS: Final = 1_000  # per answer: a long one must not outweigh the others
_MS: Final = 1_000_000
_FILTERED: Final = ("content_filter", "refusal")


def attempt_of(life: RequestState, model: str) -> Attempt | None:
    """Return the last attempt at a model; `None` if it was not called."""
    asked = [attempt for attempt in life.attempts if attempt.model is not None and attempt.model.id == model]
    return asked[-1] if asked else None


def observation_of(attempt: Attempt, text: str | None, wait_ns: int = 0) -> ObservedRequest | None:
    """Return what an attempt shows about its model; `None` if nothing: its client disconnected, or the request was
    invalid.

    `text` is the answer's text, `None` if it was not examined; `wait_ns` was spent in the queue before the model.
    """
    error = attempt.error
    if error is not None:
        is_its_own = isinstance(error, UpstreamError) or error.status >= 500
        return (
            None
            if isinstance(error, ClientGone | HedgeLost | Shutdown) or not is_its_own
            else ObservedRequest(failed=True)
        )
    cost, first_at = attempt.cost.total_pico_usd, attempt.first_at_ns
    gaps = attempt.gaps[:_MOST_GAPS]
    is_filtered = attempt.result.finish_reason in _FILTERED
    return ObservedRequest(
        failed=False,
        refused=None if text is None and not is_filtered else is_filtered or begins_as_refusal(text or ""),
        ttft_ms=None if first_at is None else (first_at - attempt.began_ns + wait_ns) / _MS,
        duration_ms=(attempt.ended_ns - attempt.began_ns + wait_ns) / _MS,
        gaps_ms=tuple(units * GAP_UNIT_NS / _MS for units in gaps),
        cost_usd=None if cost is None else cost / 1e12,
        output_tokens=attempt.usage.output_tokens,
    )
