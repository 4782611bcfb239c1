"""The health of every target, by pool and by provider: kept across reloads, checked once a second."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from typing import Final

from backends.processes.beat import until_beat
from contracts.serving.configuration import PoolSpec, Snapshot, TargetSpec
from contracts.serving.failures import DEFAULT_FAILURES, BreakerPolicy, FailurePolicy, Playbook
from gateway.config.targets import is_same_place
from gateway.request.clock import Clock
from gateway.routing.health.breaker import Breaker
from gateway.routing.health.health_changes import HealthChanges
from gateway.routing.health.pool_health import PoolHealth
from gateway.routing.health.target_health import TargetHealth

_SECOND_NS: Final = 1_000_000_000
_LOOK_SECONDS: Final = 1.0
_NONE_AWAY: Final[frozenset[str]] = frozenset()


class HealthBook:
    """Holds each target's health. `random` returns a number from 0 to 1."""

    def __init__(self, clock: Clock, random: Callable[[], float]) -> None:
        self._clock = clock
        self.random = random
        self.changes = HealthChanges(clock.wall_ns)
        self._pools: dict[str, PoolHealth] = {}
        self._targets: dict[tuple[str, str], TargetHealth] = {}
        self._providers: dict[str, Breaker] = {}
        self.playbooks: Mapping[str, Playbook] = {}
        self._is_synced = False  # afterwards the book contains only what the snapshot contains

    def of(self, spec: TargetSpec) -> TargetHealth:
        """Return a target's health: the same object as long as the snapshot contains the unchanged target.

        A request that waited during a reload may ask for a target that was removed or changed: it gets a separate
        health that nothing else uses.
        """
        health = self._targets.get((spec.pool, spec.id))
        if health is not None and is_same_place(health.spec, spec):
            return health
        pool = self.pool(spec.pool)
        return TargetHealth(pool, spec) if self._is_synced else self._added(spec, pool)

    def pool(self, name: str) -> PoolHealth:
        """Return what a pool's targets share; for a removed pool, an object that nothing else uses."""
        pool = self._pools.get(name)
        if pool is None:
            pool = PoolHealth(name, DEFAULT_FAILURES, self._clock.monotonic_ns())
            if not self._is_synced:
                self._pools[name] = pool
        return pool

    def sync(self, snapshot: Snapshot) -> None:
        """Apply a newer snapshot: unchanged targets keep their health, removed or changed ones lose it."""
        now_ns = self._clock.monotonic_ns()
        self._is_synced = True
        self.playbooks = snapshot.playbooks
        self._providers = {
            name: self._renewed(self._providers.get(name), playbook.outage, partial(self._on_provider, name))
            for name, playbook in self.playbooks.items()
        }
        wanted = {(spec.pool, spec.id): spec for pool in snapshot.pools.values() for spec in pool.targets}
        self._targets = {key: health for key, health in self._targets.items() if wanted.get(key) == health.spec}
        self._pools = {name: pool for name, pool in self._pools.items() if name in snapshot.pools}
        for spec in snapshot.pools.values():
            self._take_pool(spec, now_ns)

    def _take_pool(self, spec: PoolSpec, now_ns: int) -> None:
        pool = self._pools.get(spec.id)
        if pool is None:
            pool = self._pools[spec.id] = PoolHealth(spec.id, spec.failures, now_ns)
        pool.adopt(spec.failures)
        pool.targets, pool.away = {}, set()
        serves = any([(spec.id, target.id) in self._targets for target in spec.targets])
        for target in spec.targets:
            known = self._targets.get((spec.id, target.id))
            health = known or self._added(target, pool)
            pool.targets[target.id] = health
            health.pool = pool
            self._equip(health, pool.policy)
            if known is None and serves and health.breaker is not None:
                health.breaker.begin_slowly(now_ns, target.slow_start_seconds)
            health.look(now_ns)

    def _added(self, spec: TargetSpec, pool: PoolHealth) -> TargetHealth:
        health = TargetHealth(pool, spec)
        self._equip(health, pool.policy)
        self._targets[spec.pool, spec.id] = pool.targets[spec.id] = health
        return health

    def _equip(self, health: TargetHealth, policy: FailurePolicy) -> None:
        health.provider_breaker = self._providers.get(health.provider)
        note = partial(self.changes.note, f"{health.pool.id}/{health.id}")
        health.breaker = None if policy.breaker is None else self._renewed(health.breaker, policy.breaker, note)

    def _renewed(self, breaker: Breaker | None, policy: BreakerPolicy, on_change: Callable[[Breaker], None]) -> Breaker:
        if breaker is None:
            return Breaker(policy, self.random, on_change)
        breaker.policy = policy
        return breaker

    def _on_provider(self, name: str, breaker: Breaker) -> None:
        """Notify all of a provider's targets that it is down, or has recovered."""
        self.changes.note(f"provider {name}", breaker)
        now_ns = self._clock.monotonic_ns()
        for health in self._targets.values():
            if health.provider_breaker is breaker:
                health.look(now_ns)

    @property
    def targets(self) -> Iterator[TargetHealth]:
        """Return every target's health."""
        return iter(self._targets.values())

    @property
    def pools(self) -> Iterator[PoolHealth]:
        """Return what each pool's targets share."""
        return iter(self._pools.values())

    @property
    def providers(self) -> Mapping[str, Breaker]:
        """Return the breakers of the providers that have a playbook."""
        return self._providers

    def away_in(self, pool: str) -> Set[str]:
        """Return the ids of a pool's targets that there is any reason not to call."""
        found = self._pools.get(pool)
        return _NONE_AWAY if found is None else found.away

    @property
    def is_degraded(self) -> bool:
        """Return whether a target's or a provider's circuit is open; a pause by Retry-After does not count."""
        own = any([one.breaker is not None and not one.breaker.is_calm for one in self._targets.values()])
        return own or any([not breaker.is_calm for breaker in self._providers.values()])

    def ignoring_limit(self) -> list[str]:
        """Return the targets that ignore max_tokens, as "pool/target"."""
        return sorted(f"{one.pool.id}/{one.id}" for one in self._targets.values() if one.ignores_limit)

    async def run(self) -> None:
        """Check all health once a second, until cancelled."""
        while True:
            await asyncio.sleep(until_beat(_LOOK_SECONDS))
            self.look()

    def look(self) -> None:
        """Drop old counts, find targets that are much slower than the others, and end pauses that are over."""
        now_ns = self._clock.monotonic_ns()
        for breaker in self._providers.values():
            breaker.turn(now_ns)
        for pool in self._pools.values():
            pool.look(now_ns)

    def states(self) -> dict[str, dict[str, object]]:
        """Return what is unavailable and why, by "pool/target", and "provider NAME" for a provider that is down."""
        now_ns = self._clock.monotonic_ns()
        shown: dict[str, dict[str, object]] = {}
        for health in self._targets.values():
            if health.breaker is not None and not health.breaker.is_calm:
                shown[f"{health.pool.id}/{health.id}"] = _shown(health.breaker, now_ns)
            elif health.is_away and health.rests_until_ns > now_ns:
                rest = round((health.rests_until_ns - now_ns) / _SECOND_NS, 1)
                shown[f"{health.pool.id}/{health.id}"] = {
                    "state": "resting",
                    "seconds": rest,
                    "why": "it sent Retry-After",
                }
        for name, breaker in self._providers.items():
            if not breaker.is_calm:
                shown[f"provider {name}"] = _shown(breaker, now_ns)
        return shown


def _shown(breaker: Breaker, now_ns: int) -> dict[str, object]:
    wait_seconds = max(breaker.until_ns - now_ns, 0) / _SECOND_NS if breaker.state == "open" else 0.0
    return {"state": breaker.state, "seconds": round(wait_seconds, 1), "why": breaker.why}
