"""Explains the slowest tokens of one request: the time before each, by what the engine did in it."""

from dataclasses import dataclass, fields
from itertools import pairwise

from analytics.attribution.slow_token import SeenStep, TokenTime, steps_around, token_time
from analytics.explorer.single_request import SingleRequest
from analytics.explorer.waterfall import waterfall
from backends.store.client import StoreClient


@dataclass(frozen=True, slots=True)
class SlowToken:
    """A token (0 is the first), the time before it, and that time by cause.

    `others`: maximum number of other requests in one step in that time; `others_prefilling`: maximum number of them in
    prefill.
    """

    token: int
    waited_ns: int
    time: TokenTime
    others: int = 0
    others_prefilling: int = 0

    @property
    def main_cause(self) -> str:
        """Return the cause with the longest time: the name of a field of TokenTime without its unit."""
        return max(fields(TokenTime), key=lambda one: getattr(self.time, one.name)).name.removesuffix("_ns")


@dataclass(frozen=True, slots=True)
class EngineSpan:
    """An engine step that computed for the request, in nanoseconds from the request's arrival."""

    begin_ns: int
    end_ns: int
    own_ns: int


@dataclass(frozen=True, slots=True)
class SlowTokens:
    """The slowest tokens, slowest first, and the steps that computed the request.

    Without steps (a provider's answer, or after 72 hours), `has_steps` is False and all time is `outside`.
    """

    tokens: tuple[SlowToken, ...]
    steps: tuple[EngineSpan, ...]

    @property
    def has_steps(self) -> bool:
        """Return whether an engine reported a step with the request."""
        return bool(self.steps)


def slowest_tokens(store: StoreClient, request: SingleRequest, count: int = 5) -> SlowTokens:
    """Return the causes of the `count` slowest tokens. Raises StoreUnavailable.

    `store` must be unrestricted, because engine steps are not stored by tenant. The result contains no names, and may
    be shown to whoever may see the request.
    """
    fall = waterfall(request)
    if not fall.token_ns:
        return SlowTokens((), ())
    bounds = [*pairwise((0, *fall.token_ns))]
    order = sorted(range(len(bounds)), key=lambda place: (bounds[place][0] - bounds[place][1], place))[:count]
    start = request.started_at_ns
    steps = steps_around(store, request.request_id, start, start + fall.token_ns[-1]) if request.is_of_engine else []
    tokens = []
    for place in order:
        begin, end = bounds[place]
        waited = request.wait_ns or 0 if place == 0 else 0
        meanwhile = [step for step in steps if _is_within(step, start + begin, start + end)]
        tokens.append(
            SlowToken(
                place,
                end - begin,
                token_time(steps, start + begin, start + end, waited),
                max((step.others for step in meanwhile), default=0),
                max((step.others_prefilling for step in meanwhile), default=0),
            )
        )
    spans = tuple(
        EngineSpan(step.started_at_ns - start, step.started_at_ns - start + step.busy_ns, step.own_ns)
        for step in steps
        if step.has_it
    )
    return SlowTokens(tuple(tokens), spans)


def _is_within(step: SeenStep, begin_ns: int, end_ns: int) -> bool:
    return step.started_at_ns < end_ns and step.started_at_ns + step.busy_ns > begin_ns
