"""The ranked targets of a request, and the count of requests at each replica."""

from collections.abc import Sequence

from algorithms.routing.fleet import Fleet
from algorithms.routing.policy_input import PoolView, RoutingRequest
from algorithms.routing.replica import Replica, RoutedRequest
from contracts.api.generation import Result
from contracts.errors import ClientGone, HedgeLost, TollkeeperError, UpstreamError
from contracts.serving.configuration import TargetSpec
from gateway.replies.progress import Progress
from gateway.request.clock import Clock
from gateway.routing.replicas.regret import Sample


class Placed:
    """A request at one replica. Call `end` once."""

    __slots__ = ("_choice", "_clock", "_routed", "_progress", "_replica")

    def __init__(
        self, choice: "Choice", replica: Replica, routed: RoutedRequest, progress: Progress, clock: Clock
    ) -> None:
        self._choice = choice
        self._replica = replica
        self._routed = routed
        self._progress = progress
        self._clock = clock
        if not routed.is_blind:
            progress.on_first = self._note_first

    def _note_first(self, now_ns: int) -> None:
        routed, usage = self._routed, self._progress.reported_usage
        routed.computed = usage.input_text if self._progress.reported_method == "exact" else None
        self._choice.fleet.first_token(self._replica, routed, now_ns)

    def end(self, result: Result, error: TollkeeperError | None) -> None:
        """Record the end of the attempt."""
        self._progress.on_first = None
        now_ns = self._clock.monotonic_ns()
        sample = self._choice.sample
        if sample is not None and error is None:
            sample.note(self._replica.id, self._routed, result.usage, now_ns)
        has_failed = isinstance(error, UpstreamError) and not isinstance(error, ClientGone | HedgeLost)
        self._choice.fleet.end(
            self._replica,
            self._routed,
            now_ns,
            output_tokens=result.usage.output_tokens,
            has_failed=has_failed,
            is_computed=error is None,
        )


class Choice:
    """A request's candidates, best first. Without a `fleet` nothing is counted."""

    __slots__ = ("_demand", "_clock", "_view", "candidates", "fleet_or_none", "sample")

    def __init__(
        self,
        candidates: Sequence[TargetSpec],
        fleet: Fleet | None = None,
        demand: RoutingRequest | None = None,
        view: PoolView | None = None,
        clock: Clock | None = None,
        sample: Sample | None = None,
    ) -> None:
        self.candidates = candidates
        self.fleet_or_none = fleet
        self._demand = demand
        self._view = view
        self._clock = clock
        self.sample = sample

    @property
    def fleet(self) -> Fleet:
        """Return the pool's replicas, if requests are counted."""
        assert self.fleet_or_none is not None
        return self.fleet_or_none

    def begin(self, spec: TargetSpec, progress: Progress, *, is_blind: bool = False) -> Placed | None:
        """Count a request that is about to be sent; `None` if nothing is counted, or the target belongs to another
        pool.

        The time of the first token comes from `progress`; `is_blind`: it cannot be observed.
        """
        fleet, demand, view, clock = self.fleet_or_none, self._demand, self._view, self._clock
        if fleet is None or demand is None or view is None or clock is None:
            return None
        place = fleet.place_of(spec)
        if place is None:
            return None
        replica = fleet.replicas[place]
        cached = min(view.cached_of(replica), demand.tokens)
        routed = fleet.begin(replica, demand, cached, clock.monotonic_ns(), is_blind=is_blind)
        return Placed(self, replica, routed, progress, clock)
