"""Lower what a request may bring and make (tokens) to what its rules allow, before the call."""

from dataclasses import replace
from typing import Final

from contracts.api.chat import GenerationRequest
from contracts.errors import LimitExceeded
from contracts.serving.configuration import ModelSpec
from gateway.limits.counters.base import Counter, Shortage
from gateway.limits.demand import GPU, INPUT, PLACE, USED_BY_TOKENS, Amounts, Rates
from gateway.limits.limit_plan import Lines
from gateway.limits.reservation import Grant
from gateway.request.request_state import RequestState

NATURAL_OUTPUT: Final = 8192  # what a model may make when neither caller nor model states a bound
# An answer this short is still one: below it a nearly spent budget refuses instead of clipping.
_LEAST_OUTPUT: Final = 16
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


def nothing_fits(lines: Lines, now_ns: int) -> bool:
    """Return whether some counter has no room at all, so that counting the prompt would be wasted work."""
    for counter, place in lines.all:
        if place not in USED_BY_TOKENS or counter.room(now_ns) >= 1:
            continue
        if counter.state(now_ns).remaining < 1:  # not merely nothing leased yet
            return True
    return False


def possible(lines: Lines, estimate: int) -> int:
    """Cut an estimate of the prompt to what the limits can ever allow: nobody is refused for good by a guess."""
    return estimate if estimate < lines.most_input else lines.most_input


def least_output(choices: int, tokens_out: int) -> int:
    """Return the minimum output (tokens) that a request must be able to reserve: a short answer, one per choice."""
    return min(tokens_out, max(_LEAST_OUTPUT, choices))


def least_asked(shortage: Shortage, choices: int, amounts: Amounts) -> Shortage:
    """Return the shortage of several choices with what they need at least, which is what there is no room for."""
    if choices == 1:
        return shortage
    return replace(shortage, asked=amounts[PLACE[shortage.counter.rule.metric]], choices=choices)


def ever_allowed(lines: Lines, rates: Rates, tokens_in: int, tokens_out: int, least: int) -> int:
    """Cut an estimate of the output to what the rules can ever allow beside the prompt, if that is `least` or more."""
    fixed = rates.at_start(tokens_in, 0)
    for counter, place in lines.capping:
        within = rates.output_within(place, counter.rule.amount - fixed[place])
        if within is not None and least <= within < tokens_out:
            tokens_out = within
    return tokens_out


def fitting(lines: Lines, rates: Rates, tokens_in: int, tokens_out: int, now_ns: int, claimant: str, least: int) -> int:
    """Return the output that fits into the room there is, with what is held for the claimant; at most `tokens_out`.

    An estimate may have grown since the place was held: the answer begins with what it was promised.
    """
    fixed = rates.at_start(tokens_in, 0)
    for counter, place in lines.capping:
        within = rates.output_within(place, counter.room(now_ns, claimant) - fixed[place])
        if within is not None and least <= within < tokens_out:
            tokens_out = within
    return tokens_out


def what_is_left(shortage: Shortage, rates: Rates, amounts: Amounts) -> int | None:
    """Return the output that a nearly spent budget still pays for; `None` if it is not output that it lacks.

    What is estimated at more than a window ever has is begun with half of what that has for output. It would otherwise
    be refused for good, and nobody would learn how short such answers are.
    """
    rule = shortage.counter.rule
    if shortage.reason or rule.metric == "concurrency" or (rule.is_windowed and shortage.asked <= rule.amount):
        return None
    place = PLACE[rule.metric]
    without_output = rates.at_start(amounts[INPUT], 0)[place]
    if rule.is_windowed:
        left = (rule.amount - without_output) // 2
    else:
        left = shortage.state.remaining - without_output
    return None if left <= 0 else rates.output_within(place, left)
