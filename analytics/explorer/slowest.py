"""Why the slowest tokens of one request were slow: the time before each, by what the engine did meanwhile."""

from dataclasses import dataclass, fields
from itertools import pairwise

from analytics.attribution.slow_token import SeenStep, TokenTime, steps_around, token_time
from analytics.explorer.single_request import SingleRequest
from analytics.explorer.waterfall import waterfall
from backends.store.client import StoreClient


@dataclass(frozen=True, slots=True)
class SlowToken:
    """A token (0 is the first), for how long it was waited, and that time by its cause.

    `others` is with how many other requests the engine was busy at most in one step meanwhile, `others_prefilling` how
    many of them had their prompts read in one.
    """

    token: int
    waited_ns: int
    time: TokenTime
    others: int = 0
    others_prefilling: int = 0

    @property
    def main_cause(self) -> str:
        """Return the name of the cause that took longest: a field of TokenTime without its unit."""
        return max(fields(TokenTime), key=lambda one: getattr(self.time, one.name)).name.removesuffix("_ns")


@dataclass(frozen=True, slots=True)
class EngineSpan:
    """A step of the engine that had the request in it, in nanoseconds from the request's arrival."""

    begin_ns: int
    end_ns: int
    own_ns: int


@dataclass(frozen=True, slots=True)
class SlowTokens:
    """The slowest tokens, slowest first, and the steps that computed the request.

    Without steps, of a provider or after the 72 hours for which they are kept, `has_steps` is `False`, and all time is
    `outside`.
    """

    tokens: tuple[SlowToken, ...]
    steps: tuple[EngineSpan, ...]

    @property
    def has_steps(self) -> bool:
        """Return whether the engine told of a step with the request."""
        return bool(self.steps)


def slowest_tokens(store: StoreClient, request: SingleRequest, count: int = 5) -> SlowTokens:
    """Explain the `count` tokens that were waited for longest. Raises StoreUnavailable.

    The engine's steps are all tenants', so `store` must be one that reads them; what comes back names nobody, and is
    for the one that may see the request.
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
