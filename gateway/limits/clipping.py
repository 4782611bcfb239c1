"""Lower a request's maximum input and output (tokens) to what its rules allow, before the call."""

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

NATURAL_OUTPUT: Final = 8192  # maximum output if neither caller nor model states one
# The shortest answer worth starting: below it a nearly spent budget refuses instead of clipping.
_LEAST_OUTPUT: Final = 16
_UNSEEN_KIND: Final = "openai_http"  # its complete answers arrive in one piece, so their growth is not observed
UNSEEN_KINDS: Final = frozenset((_UNSEEN_KIND,))


def is_unseen(life: RequestState) -> bool:
    """Return whether the answer's growth cannot be observed, at any target of its pool."""
    request, model = life.request, life.model
    if request is None or model is None or request.is_streamed:
        return False
    return life.snapshot.pools[model.pool].kinds == UNSEEN_KINDS


def beyond_limit(limit: int, rule: str) -> LimitExceeded:
    """Return the error that ends an answer whose target ignores `max_tokens`; `rule` is the rule that lowered it."""
    clipped = f", lowered by rule {rule!r}" if rule else ""
    return LimitExceeded(
        f"the answer has reached max_tokens ({limit}{clipped}); the model's server did not stop there",
        code="output_limit_reached",
    )


def bound_of(life: RequestState, grant: Grant | None) -> tuple[int | None, str]:
    """Return the maximum tokens of a choice, and the rule that lowered it; `None` if no maximum is known."""
    if life.plan is not None:
        return life.output_limit, ""  # every rule has room for it, so nothing is clipped
    request = life.request
    asked = request.output_limit if isinstance(request, GenerationRequest) else None
    clipped = None if grant is None else grant.max_output
    if clipped is not None and grant is not None and (asked is None or clipped < asked):
        return clipped, grant.clipped_by
    return asked, ""


def most_of_all(life: RequestState, grant: Grant | None) -> int | None:
    """Return the maximum tokens of all choices together; `None` if no maximum is known."""
    each, _ = bound_of(life, grant)
    if each is None or life.request is None:
        return None
    return each * (life.choices if life.plan is not None else life.request.choice_count)


def beyond_bound(life: RequestState, grant: Grant | None) -> int | None:
    """Return how many tokens a target has produced beyond the answer's maximum; `None` if unknown or 0."""
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
    """Return the maximum output (tokens) over all choices, as far as request and model state it."""
    return (request.output_limit or model.context_tokens or NATURAL_OUTPUT) * request.choice_count


def clip(grant: Grant, life: RequestState, now_ns: int) -> None:
    """Lower the maximum output to what the rules can ever allow this request, and remember the rule that lowered it.

    What a window lacks now may be free later, so a window bounds an answer by its whole amount only. An answer whose
    growth cannot be observed cannot extend its reservation, so it is bounded by what is free now.
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
            # Never 0 here: the reservation has a token for each choice, and every rule allows the reservation.
            most = allowed
            grant.max_output, grant.clipped_by = most // choices, rule.id


def _whole_amount(counter: Counter, place: int, grant: Grant) -> int | None:
    """Return the output tokens that a window's whole amount pays for; `None` for GPU time, which is only estimated."""
    if place == GPU:
        return None
    return grant.rates.output_within(place, counter.rule.amount - grant.rates.at_start(grant.input_tokens, 0)[place])


def _left_for_output(counter: Counter, place: int, rates: Rates, now_ns: int, enough: int) -> int:
    """Return how many more output tokens a counter has room for; `enough` or more if that many fit."""
    within = rates.output_within(place, counter.room(now_ns))
    if within is None or within >= enough:
        return enough
    # A shared budget can lease more than this process holds. A soft budget's unlimited room returned above.
    return rates.output_within(place, counter.state(now_ns).remaining) or 0


def nothing_fits(lines: Lines, now_ns: int) -> bool:
    """Return whether a counter has no room at all, so that counting the prompt would be wasted work."""
    for counter, place in lines.all:
        if place not in USED_BY_TOKENS or counter.room(now_ns) >= 1:
            continue
        if counter.state(now_ns).remaining < 1:  # not only the lease is used up
            return True
    return False


def possible(lines: Lines, estimate: int) -> int:
    """Lower an estimate of the prompt to what the limits can ever allow: a guess refuses no request permanently."""
    return estimate if estimate < lines.most_input else lines.most_input


def least_output(choices: int, tokens_out: int) -> int:
    """Return the minimum output (tokens) that a request must be able to reserve: a short answer, one per choice."""
    return min(tokens_out, max(_LEAST_OUTPUT, choices))


def least_asked(shortage: Shortage, choices: int, amounts: Amounts) -> Shortage:
    """Return the shortage of a request with several choices, with the minimum that it needs, for which there is no
    room.
    """
    if choices == 1:
        return shortage
    return replace(shortage, asked=amounts[PLACE[shortage.counter.rule.metric]], choices=choices)


def ever_allowed(lines: Lines, rates: Rates, tokens_in: int, tokens_out: int, least: int) -> int:
    """Lower an estimate of the output to the most that the rules can allow with this prompt, but not below `least`."""
    fixed = rates.at_start(tokens_in, 0)
    for counter, place in lines.capping:
        within = rates.output_within(place, counter.rule.amount - fixed[place])
        if within is not None and least <= within < tokens_out:
            tokens_out = within
    return tokens_out


def fitting(lines: Lines, rates: Rates, tokens_in: int, tokens_out: int, now_ns: int, claimant: str, least: int) -> int:
    """Return the output that fits now, including the claimant's reserved retry slots; at most `tokens_out`.

    The estimate may have grown since the slot was reserved: the answer starts with the amount that was reserved.
    """
    fixed = rates.at_start(tokens_in, 0)
    for counter, place in lines.capping:
        within = rates.output_within(place, counter.room(now_ns, claimant) - fixed[place])
        if within is not None and least <= within < tokens_out:
            tokens_out = within
    return tokens_out


def what_is_left(shortage: Shortage, rates: Rates, amounts: Amounts) -> int | None:
    """Return the output that a nearly spent budget still pays for; `None` if the shortage is not of output.

    If the estimate exceeds a window's whole amount, the request starts with half of what the window has for output.
    Otherwise it would be refused permanently, and the estimate would never learn how short such answers are.
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
