"""Simulate a provider's outage: which targets answer, which requests are lost, when routing recovers."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from backends.llm.base import ModelCall
from contracts.errors import ConfigurationError, TollkeeperError
from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from gateway.apis.operations import CHAT
from gateway.config.targets import TargetRegistry
from gateway.replies.reply import Reply, ReplyFacts
from gateway.request.clock import Clock
from gateway.request.request_state import RequestState
from gateway.routing.attempts.caller import Caller
from gateway.routing.attempts.turn_order import arranged
from gateway.routing.drill.standalone import standalone_chat
from gateway.routing.drill.world import DrillTarget, Fault, Outage, provider_of
from gateway.routing.health.health_book import HealthBook
from gateway.routing.routes.route_plan import CompiledRoute, RoutePlans

_BODY: Final = b'{"model":"drill","messages":[{"role":"user","content":"drill"}]}'
_WARM_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.1
_SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """What is simulated: `provider` fails for `outage_seconds`, while each name gets the given number of requests per
    second.
    """

    provider: str
    fault: Fault = "error"
    outage_seconds: float = 60.0
    after_seconds: float = 120.0
    requests_per_second: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("outage_seconds", "after_seconds", "requests_per_second"):
            if not 0 < getattr(self, name) <= 3600:
                raise ConfigurationError(f"drill: {name} is {getattr(self, name)}; use more than 0 and at most 3600")


@dataclass(slots=True)
class NameReport:
    """The results of the requests for one name. Counts include the requests that arrived during the outage."""

    name: str
    has_others: bool  # it has targets of another provider
    requests: int = 0
    failed: int = 0
    worst_seconds: float = 0.0
    answered_by: Counter[str] = field(default_factory=Counter)
    failed_afterwards: int = 0


@dataclass(frozen=True, slots=True)
class DrillReport:
    """The result of a drill. Seconds count from the start or the end of the outage; `None`: it did not happen."""

    plan: DrillPlan
    names: list[NameReport]
    calls_met: int  # that failed because of the outage
    left_alone_after_seconds: float | None  # until all of the provider's targets had open circuits
    back_after_seconds: float | None

    @property
    def is_passed(self) -> bool:
        """Return whether other providers can answer for some names, none of these lost a request, and all recovered."""
        served = [report for report in self.names if report.has_others]
        lost = any(report.failed or report.failed_afterwards for report in served)
        return bool(served) and not lost and self.back_after_seconds is not None


@dataclass(frozen=True, slots=True)
class _Leg:
    model: ModelSpec
    pool: PoolSpec


async def play(snapshot: Snapshot, plan: DrillPlan) -> DrillReport:
    """Simulate an outage in virtual time. Raises ConfigurationError if no target belongs to the provider."""
    return await _Drill(snapshot, plan).play()


class _Drill:
    def __init__(self, snapshot: Snapshot, plan: DrillPlan) -> None:
        self._snapshot = snapshot
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._clock = Clock(self._now_ns, self._now_ns)
        random = Random(plan.seed)
        self._book = HealthBook(self._clock, random.random)
        self._book.sync(snapshot)
        self._outage = Outage(plan.provider, plan.fault, _WARM_SECONDS, _WARM_SECONDS + plan.outage_seconds)
        self._met = 0
        kinds = {spec.kind for pool in snapshot.pools.values() for spec in pool.targets}
        self._targets = TargetRegistry({kind: lambda spec, _: self._target(spec) for kind in kinds})
        self._targets.sync(snapshot)
        self._caller = Caller(self._targets, self._clock, self._book)
        self._turn = 0

    async def play(self) -> DrillReport:
        ways = {name: legs for name, legs in _ways(self._snapshot).items() if self._is_concerned(legs)}
        if not ways:
            known = ", ".join(
                sorted({provider_of(spec) for legs in _ways(self._snapshot).values() for spec in _all(legs)})
            )
            raise ConfigurationError(
                f"no model or route has a target of provider {self._plan.provider!r}; known: {known}"
            )
        reports = {name: NameReport(name, self._has_others(legs)) for name, legs in ways.items()}
        looking = asyncio.ensure_future(self._book.run())
        watching = asyncio.ensure_future(self._watch())
        asked = [asyncio.ensure_future(self._ask_on(name, ways[name], reports[name])) for name in ways]
        await asyncio.gather(*asked)
        looking.cancel()
        left, back = await watching
        await asyncio.gather(looking, return_exceptions=True)
        await self._targets.close()
        return DrillReport(self._plan, list(reports.values()), self._met, left, back)

    async def _ask_on(self, name: str, legs: Sequence[_Leg], report: NameReport) -> None:
        """Send requests for a name from start to end, at an even rate."""
        ends = self._outage.until_seconds + self._plan.after_seconds
        tasks = []
        while self._loop.time() < ends:
            tasks.append(asyncio.ensure_future(self._ask(name, legs, report)))
            await asyncio.sleep(1 / self._plan.requests_per_second)
        await asyncio.gather(*tasks)

    async def _ask(self, name: str, legs: Sequence[_Leg], report: NameReport) -> None:
        began = self._loop.time()
        life = self._life(name)
        error = await self._serve(life, legs)
        took = self._loop.time() - began
        if began >= self._outage.until_seconds:
            report.failed_afterwards += error is not None
        elif began >= self._outage.from_seconds:
            report.requests += 1
            report.failed += error is not None
            report.worst_seconds = max(report.worst_seconds, took)
            if error is None:
                report.answered_by[provider_of(life.attempts[-1].target)] += 1

    async def _serve(self, life: RequestState, legs: Sequence[_Leg]) -> TollkeeperError | None:
        reply = Reply(ReplyFacts(life.exchange, life.id_text, 0, self._clock))
        assert life.request is not None
        failure: TollkeeperError | None = None
        for leg in arranged(legs, self._book, self._now_ns()):
            life.model = leg.model
            call = ModelCall(life.id, CHAT.path, life.request, life.body, "", "")
            try:
                await self._caller.call(life, reply, call, self._in_turn(leg.pool.targets))
                return None
            except TollkeeperError as error:
                failure = error
                if not self._caller.may_fall_back(life, reply, error):
                    break
        return failure

    def _in_turn(self, targets: Sequence[TargetSpec]) -> list[TargetSpec]:
        self._turn += 1
        first = self._turn % len(targets)
        return [*targets[first:], *targets[:first]]

    async def _watch(self) -> tuple[float | None, float | None]:
        """Return when all targets of the provider had open circuits, and when none had any more."""
        left: float | None = None
        back: float | None = None
        ends = self._outage.until_seconds + self._plan.after_seconds
        while self._loop.time() < ends:
            now = self._loop.time()
            away = [one.is_away for one in self._book.targets if one.provider == self._plan.provider]
            if left is None and now >= self._outage.from_seconds and all(away):
                left = now - self._outage.from_seconds
            if back is None and now >= self._outage.until_seconds and not any(away):
                back = now - self._outage.until_seconds
            await asyncio.sleep(_LOOK_SECONDS)
        return left, back

    def _life(self, name: str) -> RequestState:
        now = self._now_ns()
        life = standalone_chat(_BODY, now, now, self._snapshot)
        life.requested_model, life.request, life.admitted_ns = name, CHAT.read("application/json", _BODY), now
        return life

    def _target(self, spec: TargetSpec) -> DrillTarget:
        return DrillTarget(spec, self._outage, self._note_met)

    def _note_met(self) -> None:
        self._met += 1

    def _now_ns(self) -> int:
        return round(self._loop.time() * _SECOND_NS)

    def _is_concerned(self, legs: Sequence[_Leg]) -> bool:
        return any(provider_of(spec) == self._plan.provider for spec in _all(legs))

    def _has_others(self, legs: Sequence[_Leg]) -> bool:
        return any(provider_of(spec) != self._plan.provider for spec in _all(legs))


def _ways(snapshot: Snapshot) -> Mapping[str, Sequence[_Leg]]:
    """Return the models of every name; all conditions of routes are assumed to be met."""
    plans = RoutePlans()
    models = {model.id: [_Leg(model, snapshot.pools[model.pool])] for model in snapshot.models.values()}
    routes = {route.id: list(_legs(plans.plan_for(route, snapshot))) for route in snapshot.routes.values()}
    return {**models, **routes}


def _legs(fork: CompiledRoute) -> Iterator[_Leg]:
    for branch in (*fork.choose, *fork.fallbacks):
        if isinstance(branch.to, CompiledRoute):
            yield from _legs(branch.to)
        else:
            yield _Leg(branch.to.model, branch.to.pool)


def _all(legs: Sequence[_Leg]) -> Iterator[TargetSpec]:
    for leg in legs:
        yield from leg.pool.targets
