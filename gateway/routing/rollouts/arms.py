"""Assigns requests of a route to one arm of its rollout: the same conversation, user or key always to the same arm."""

from contracts.rules.holds import HeldFor, hold_on
from contracts.serving.configuration import Snapshot
from contracts.serving.rollouts import RolloutSpec, unit_of
from contracts.serving.routes import RouteEntry
from gateway.request.request_state import RequestState
from gateway.routing.rollouts.rollout_book import RolloutBook
from gateway.routing.routes.fallback_chain import FallbackChain
from gateway.routing.routes.route_plan import RouteCandidate, leg_of

_LABEL = "candidate"


class Arms:
    """Puts the candidate before the incumbent in the fallback chain of the candidate's share; the incumbent answers if
    it fails.
    """

    def __init__(self, book: RolloutBook) -> None:
        self._book = book
        self._snapshot: Snapshot | None = None
        self._beside: dict[RouteCandidate, RouteCandidate | None] = {}

    def enter(self, life: RequestState, way: FallbackChain) -> None:
        """Assign a request to an arm, if its fallback chain begins with the incumbent of a running rollout."""
        spec = life.snapshot.rollouts.get(way.route.id)
        if spec is None or not spec.rules.takes(life.who.tenant):
            return
        first = way.legs[0]
        if first.model.id != spec.incumbent:
            return
        leg = self.candidate_leg(spec, first, life.snapshot)
        if leg is None or self._is_frozen(spec, life):
            return
        life.rollout = spec
        unit = unit_of(life.conversation_id, life.who.user, life.who.key_id)
        if spec.draws(life.who.tenant, unit) and not self._book.stopped(spec):
            life.arm = "candidate"
            way.legs.insert(0, leg)
        else:
            life.arm = "incumbent"
        life.add_decision("rollout", {"id": spec.id, "arm": life.arm, "percent": spec.percent})

    def candidate_leg(self, spec: RolloutSpec, incumbent: RouteCandidate, snapshot: Snapshot) -> RouteCandidate | None:
        """Return the candidate in the incumbent's place, pinned to the same regions; `None` if it has no target."""
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._beside.clear()
        if incumbent not in self._beside:
            entry = RouteEntry(model=spec.candidate, label=_LABEL)
            self._beside[incumbent] = leg_of(entry, snapshot.models, snapshot.pools, incumbent.regions)
        return self._beside[incumbent]

    def _is_frozen(self, spec: RolloutSpec, life: RequestState) -> bool:
        """Return whether an SLO at risk freezes canaries: then no request takes part and nothing is compared."""
        if not life.snapshot.holds:
            return False
        who = HeldFor(life.who.tenant, spec.route, (spec.incumbent, spec.candidate))
        return hold_on(life.snapshot.holds, "freeze_canaries", who, life.started_at_ns) is not None
