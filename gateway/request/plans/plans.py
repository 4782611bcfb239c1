"""The plans by key and model: each is computed at its first request, and again every second."""

from typing import Final

from contracts.recording.ids import IdSource
from contracts.serving.configuration import Snapshot
from gateway.apis.operations import Operation
from gateway.request.clock import Clock
from gateway.request.plans.plan import KeptPlan, make_plan
from gateway.request.plans.record_shapes import KeptShapes
from gateway.request.stages import Stages

_MAX_PLANS: Final = 10_000


class Plans:
    """Plans by credential, API and model, for one snapshot. `ids` generates request ids."""

    def __init__(self, stages: Stages, clock: Clock) -> None:
        self._stages = stages
        self._wall_ns = clock.wall_ns
        self._directory, self._counters = stages.directory, stages.limiter.store
        self.ids = IdSource()
        self.known: dict[tuple[bytes, str, str], KeptPlan] = {}
        self._known_of: Snapshot | None = None
        # The last one asked for: mostly the next is the same, which takes less to see than to look up.
        self._last_sent, self._last_model, self._last_api = b"", "", ""
        self._last_plan: KeptPlan | None = None
        self._shapes = KeptShapes()
        self.generation = 0  # of the counters that plans have in hand
        self._stale: tuple[bytes, str, str] | None = None  # a plan that is better made again

    def plan_for(self, sent: bytes, operation: Operation, model: str, now_ns: int) -> KeptPlan | None:
        """Return the plan of a key for a model; `None` if the key was not seen yet."""
        api = operation.api
        snapshot = self._directory.snapshot
        if self._known_of is not snapshot:
            self._known_of = snapshot
            self._forget()  # what is kept of another would keep it alive
        last = self._last_plan
        if last is not None and now_ns < last.stale_ns and sent == self._last_sent and model == self._last_model:
            if api == self._last_api:
                return last
        plan = self.known.get((sent, api, model))
        if plan is None or now_ns >= plan.until_ns:
            self._let_counters_go()
            key = self._stages.authenticator.known(sent, snapshot)
            if key is None:
                return None
            if len(self.known) >= _MAX_PLANS:
                self._forget()
            plan = make_plan(self._stages, self._shapes, key, operation, model, now_ns)
            self.known[sent, api, model] = plan
        elif now_ns >= plan.stale_ns:
            self._stale = (sent, api, model)
        self._last_sent, self._last_model, self._last_api, self._last_plan = sent, model, api, plan
        return plan

    def prepare_next(self) -> None:
        """Do work in idle time that the next requests would otherwise have to do first."""
        self.ids.refill()
        self._let_counters_go()
        stale, self._stale = self._stale, None
        if stale is not None:
            self.freshen(*stale, self._wall_ns())

    def freshen(self, sent: bytes, api: str, model: str, now_ns: int) -> None:
        """Compute a stale plan again."""
        plan = self.known.get((sent, api, model))
        if plan is None or now_ns < plan.stale_ns:
            return
        snapshot = self._directory.snapshot
        key = self._stages.authenticator.known(sent, snapshot)
        if key is not None and self._known_of is snapshot:
            made = make_plan(self._stages, self._shapes, key, plan.operation, model, self._wall_ns())
            self.known[sent, api, model] = made

    def _let_counters_go(self) -> None:
        """Drop all plans if the counter store is about to drop unused counters: plans would keep these alive."""
        if self.generation != self._counters.generation:
            self.generation = self._counters.generation
            self._forget()

    def _forget(self) -> None:
        self.known.clear()
        self._last_plan = None
