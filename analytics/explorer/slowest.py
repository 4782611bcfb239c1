"""Why the slowest tokens of one request were slow: the time before each, by what the engine did meanwhile."""

from dataclasses import dataclass, fields
from itertools import pairwise
from uuid import UUID

from analytics.attribution.slow_token import TokenTime, steps_around, token_time
from analytics.explorer.single_request import SingleRequest, single_request
from analytics.explorer.waterfall import waterfall
from backends.store.client import StoreClient


@dataclass(frozen=True, slots=True)
class SlowToken:
    """A token (0 is the first), for how long it was waited, and that time by its cause."""

    token: int
    waited_ns: int
    time: TokenTime

    @property
    def main_cause(self) -> str:
        """Name the cause that took longest: a field of TokenTime without its unit."""
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
        """Say whether the engine told of a step with the request."""
        return bool(self.steps)


def slowest_tokens(store: StoreClient, request: SingleRequest, count: int = 5) -> SlowTokens:
    """Explain the `count` tokens that were waited for longest. For those who may see the whole platform: the engine's
    steps are all tenants'. Raises StoreUnavailable.
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
        tokens.append(SlowToken(place, end - begin, token_time(steps, start + begin, start + end, waited)))
    spans = tuple(
        EngineSpan(step.started_at_ns - start, step.started_at_ns - start + step.busy_ns, step.own_ns)
        for step in steps
        if step.has_it
    )
    return SlowTokens(tuple(tokens), spans)


def slowest_tokens_of(store: StoreClient, request_id: UUID) -> SlowTokens:
    """Explain the slowest tokens of the request of that id. Raises NotFound, StoreUnavailable."""
    return slowest_tokens(store, single_request(store, request_id))
