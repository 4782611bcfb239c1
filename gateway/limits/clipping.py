"""Lower a request's maximum output to what its rules allow, before the call."""

from typing import Final

from contracts.api.chat import GenerationRequest
from contracts.errors import LimitExceeded
from contracts.serving.configuration import ModelSpec
from gateway.limits.counters.base import Counter
from gateway.limits.demand import GPU, Rates
from gateway.limits.grant import Grant
from gateway.request.request_state import RequestState

NATURAL_OUTPUT: Final = 8192  # what a model may make when neither caller nor model states a bound
_UNSEEN_KIND: Final = "openai_http"  # its whole answers are not seen growing
UNSEEN_KINDS: Final = frozenset((_UNSEEN_KIND,))


def is_unseen(life: RequestState) -> bool:
    """Return whether nobody sees this answer grow, whichever target of its pool gives it."""
    request, model = life.request, life.model
    if request is None or model is None or request.is_streamed:
        return False
    return life.snapshot.pools[model.pool].kinds == UNSEEN_KINDS


def beyond_limit(limit: int, rule: str) -> LimitExceeded:
    """Return what ends an answer whose target goes on beyond the `max_tokens` it was told; `rule` clipped that."""
    clipped = f", to which rule {rule!r} clipped it" if rule else ""
    return LimitExceeded(
        f"the answer has reached max_tokens, {limit}{clipped}; the model's server did not stop there",
        code="output_limit_reached",
    )


def bound_of(life: RequestState, grant: Grant | None) -> tuple[int | None, str]:
    """Return the most tokens that a choice may have, and the rule that clipped it; `None`: nobody has said."""
    if life.plan is not None:
        return life.output_limit, ""  # nothing clips what every rule has the room for
    request = life.request
    asked = request.output_limit if isinstance(request, GenerationRequest) else None
    clipped = None if grant is None else grant.max_output
    if clipped is not None and grant is not None and (asked is None or clipped < asked):
        return clipped, grant.clipped_by
    return asked, ""


def beyond_bound(life: RequestState, grant: Grant | None) -> int | None:
    """Return how many tokens a target has made beyond what its answer may have; `None` if that is not known or 0."""
    request, made = life.request, life.tokens_out
    if life.plan is not None and life.delivered_tokens is None:
        asked = life.output_limit
        return None if asked is None or made is None else max(made - asked * life.choices, 0) or None
    if not isinstance(request, GenerationRequest) or made is None or life.is_hit:
        return None
    each, _ = bound_of(life, grant)
    bounds = [] if each is None else [each * request.choice_count]
    if life.delivered_tokens is not None:
        bounds.append(life.delivered_tokens)
    return max(made - min(bounds), 0) or None if bounds else None


def most_output(request: GenerationRequest, model: ModelSpec) -> int:
    """Return how many tokens an answer could have over all choices, as far as that is said."""
    return (request.output_limit or model.context_tokens or NATURAL_OUTPUT) * request.choice_count


def clip(grant: Grant, life: RequestState, now_ns: int) -> None:
    """Cut what the model may make to what the rules can ever allow this request, and remember which rule cut it.

    What a window lacks now it may have later, so it bounds an answer by its whole amount only; but an answer that
    nobody sees growing cannot be extended on its way, and is bounded by what there is now.
    """
    request, model = life.request, life.model
    if not isinstance(request, GenerationRequest) or model is None:
        return
    choices, most = request.choice_count, most_output(request, model)
    is_seen = request.is_streamed or _UNSEEN_KIND not in life.snapshot.pools[model.pool].kinds
    for line in grant.reservation.lines.capping:
        counter, place = line
        rule = counter.rule
        if is_seen and rule.is_windowed:
            within = _whole_amount(counter, place, grant)
            if within is None:
                continue
            allowed = within
        else:
            allowed = grant.output_tokens + _left_for_output(counter, place, grant.rates, now_ns, most)
        if allowed < most:
            # What is reserved has a token for each choice, and each rule allows what is reserved: never 0 here.
            most = allowed
            grant.max_output, grant.clipped_by = most // choices, rule.id


def _whole_amount(counter: Counter, place: int, grant: Grant) -> int | None:
    """Return the output tokens that a window's whole amount pays for; `None` for GPU time, which is only estimated."""
    if place == GPU:
        return None
    return grant.rates.output_within(place, counter.rule.amount - grant.rates.at_start(grant.input_tokens, 0)[place])


def _left_for_output(counter: Counter, place: int, rates: Rates, now_ns: int, enough: int) -> int:
    """Return how many more output tokens a counter has room for; where it is plenty, `enough` or more."""
    within = rates.output_within(place, counter.room(now_ns))
    if within is None or within >= enough:
        return enough
    # What this process has may be a lease on more. A soft budget's room has no end and was enough above.
    return rates.output_within(place, counter.state(now_ns).remaining) or 0
