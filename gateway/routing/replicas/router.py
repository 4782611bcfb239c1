"""Ranks targets by the pool's policy, from the known state of its replicas."""

import random
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final

from algorithms.routing.fleet import Fleet
from algorithms.routing.policies.table import policy_named
from algorithms.routing.policy_input import PoolView, RoutingRequest
from algorithms.routing.replica import NO_ROOM_KNOWN, Replica, Room
from backends.llm.base import ModelCall
from backends.llm.host.engine_hosts import EngineHosts
from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from contracts.serving.pool_choices import PLAIN_POLICY
from gateway.request.clock import Clock
from gateway.routing.replicas.cache_mirror import CacheMirror
from gateway.routing.replicas.choice import Choice
from gateway.routing.replicas.credit_book import CreditBook
from gateway.routing.replicas.regret import Sample
from gateway.routing.replicas.routing_requests import Finder, estimated_request, routing_request_of

_LOOK_NS: Final = 50_000_000  # interval for reading what hosts report, which they do once a second
_SEATS_SHARE: Final = 0.75  # share of an engine's sequences in use from which its capacity is considered

Away = Callable[[str], Set[str]]  # by a pool's id: the ids of its targets that are best not called


class Router:
    """Chooses among a pool's targets, and keeps what is known of them as long as they are configured.

    `targets` returns their adapters, `hosts` the engine hosts' state, `mirror` follows their caches; for `sample_share`
    of the requests the alternatives' predictions are recorded.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        targets: Finder | None = None,
        hosts: EngineHosts | None = None,
        mirror: CacheMirror | None = None,
        *,
        sample_share: float = 0.0,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock or Clock()
        self._targets = targets
        self._hosts = hosts
        self._sample_share = sample_share
        self._draw = draw
        self._credits = CreditBook()
        self._fleets: dict[str, Fleet] = {}
        self._pools: Mapping[str, PoolSpec] | None = None  # as of the last `sync`
        self.mirror = mirror or CacheMirror()
        self.away_in: Away | None = None

    # the plain way

    @staticmethod
    def is_plain(pool: PoolSpec) -> bool:
        """Return whether `choose` is enough for this pool: it has one target, or uses weighted round robin."""
        return len(pool.targets) == 1 or pool.policy == PLAIN_POLICY

    def choose(self, model: ModelSpec, snapshot: Snapshot, within: frozenset[str] | None = None) -> list[TargetSpec]:
        """Return the pool's targets in the order to try them, by their weights; only those whose ids are in `within`,
        if given.

        Smooth weighted round robin (nginx, 2012): in each turn every target gains its weight, the one with the highest
        credit is chosen and pays the sum of weights. In sum-of-weights turns each target is first exactly weight times.
        If some may not be called, the others share the turn.
        """
        return self._in_turn(snapshot.pools[model.pool], within)

    def _in_turn(self, pool: PoolSpec, within: frozenset[str] | None) -> list[TargetSpec]:
        targets: Sequence[TargetSpec] = pool.targets
        if within is not None:
            targets = [target for target in targets if target.id in within]
        if len(targets) < 2:
            return list(targets)
        credits = self._credits.of(pool)
        total = 0
        for target in targets:
            credits[target.id] += target.weight
            total += target.weight
        ranked = sorted(targets, key=lambda target: -credits[target.id])
        credits[ranked[0].id] -= total
        return ranked

    # by policy

    async def rank(
        self,
        model: ModelSpec,
        snapshot: Snapshot,
        call: ModelCall,
        *,
        conversation_id: str = "",
        output_tokens: int = 0,
        within: frozenset[str] | None = None,
    ) -> Choice:
        """Choose for a request: return its candidates, best first, and what counts them while they are called.

        `output_tokens` is the expected maximum of the answer, `within` the ids of the targets that may see the prompt.
        """
        pool = snapshot.pools[model.pool]
        if self.is_plain(pool):
            return Choice(self.choose(model, snapshot, within))
        specs = pool.targets if within is None else tuple(spec for spec in pool.targets if spec.id in within)
        demand = await routing_request_of(call, specs, self._targets, conversation_id, output_tokens)
        return self.place(model, pool, demand, within)

    def rank_by_text(
        self,
        model: ModelSpec,
        pool: PoolSpec,
        body: bytes,
        cache_salt: str,
        *,
        conversation_id: str,
        output_tokens: int,
        is_whole: bool,
    ) -> Choice:
        """Rank servers that do not report their tokens, by the text of a request's body, without waiting."""
        demand = estimated_request(body, cache_salt, conversation_id, output_tokens, is_whole=is_whole)
        return self.place(model, pool, demand)

    def place(
        self, model: ModelSpec, pool: PoolSpec, demand: RoutingRequest, within: frozenset[str] | None = None
    ) -> Choice:
        """Choose for a request with a known demand.

        `pool` is the configuration that the request started with: if it has changed since, the request still uses its
        targets.
        """
        fleet, now_ns = self._fleet(pool, model), self._clock.monotonic_ns()
        if fleet is None:
            return Choice(self._in_turn(pool, within))
        if now_ns - fleet.looked_ns > _LOOK_NS:
            self._look(fleet, now_ns)
        view = fleet.view(demand, now_ns, within)
        candidates = _candidates(fleet, pool, fleet.rank(demand, view), within)
        away = None if self.away_in is None else self.away_in(pool.id)
        if away:
            candidates.sort(key=lambda spec: spec.id in away)
        sample = None
        if self._sample_share and candidates and self._draw() < self._sample_share:
            sample = _sample(fleet, demand, view, candidates[0].id)
        return Choice(candidates, fleet, demand, view, self._clock, sample)

    def least_wait_ns(self, pool: PoolSpec) -> int | None:
        """Predict how long (ns) a request that arrives now would wait at the best of a pool's targets, only these
        considered.

        `None` if none of them is followed, as in pools with weighted round robin.
        """
        fleet = self._fleets.get(pool.id)
        if fleet is None:
            return None
        ids, now_ns = {target.id for target in pool.targets}, self._clock.monotonic_ns()
        waits = [replica.wait_ns(now_ns) for replica in fleet.replicas if replica.id in ids]
        return round(min(waits)) if waits else None

    def sync(self, snapshot: Snapshot) -> None:
        """Follow a snapshot: forget pools that were removed or use weighted round robin now, and update the others.

        From then on pools are as in the last snapshot that was followed, whatever configuration a request started with.
        """
        self._pools = snapshot.pools
        self._credits.follow(snapshot.pools)
        for name, fleet in list(self._fleets.items()):
            pool = snapshot.pools.get(name)
            if pool is None or pool.policy == PLAIN_POLICY:
                self.mirror.drop(self._fleets.pop(name))
                continue
            model = snapshot.models.get(fleet.model)
            if model is None or model.pool != name:
                model = next((one for one in snapshot.models.values() if one.pool == name), None)
            self._follow(fleet, pool, fleet.model if model is None else model.id)

    def status(self) -> dict[str, object]:
        """Return what GET /ready shows: the replicas of every pool with a routing policy, and the mirrored caches."""
        now_ns = self._clock.monotonic_ns()
        return {
            "pools": {name: fleet.status(now_ns) for name, fleet in sorted(self._fleets.items())},
            "caches": self.mirror.status(),
        }

    def _fleet(self, pool: PoolSpec, model: ModelSpec) -> Fleet | None:
        """Return a pool's replicas; `None` if the pool is gone, or uses weighted round robin now."""
        fleet = self._fleets.get(pool.id)
        if fleet is not None and fleet.spec is pool:
            return fleet
        current = pool if self._pools is None else self._pools.get(pool.id)
        if current is None or current.policy == PLAIN_POLICY:
            return None
        if fleet is None:
            fleet = self._fleets[pool.id] = Fleet(policy_named(current.policy, self._draw), policy_name=current.policy)
            self._follow(fleet, current, model.id)
        elif fleet.spec is not current:  # before the first `sync`
            self._follow(fleet, current, fleet.model)
        return fleet

    def _follow(self, fleet: Fleet, pool: PoolSpec, model: str) -> None:
        """Apply a pool's current configuration. Knowledge of remaining replicas stays, even if the policy changes."""
        if fleet.policy_name != pool.policy:
            fleet.policy, fleet.policy_name = policy_named(pool.policy, self._draw), pool.policy
        if fleet.spec != pool:
            fleet.follow_pool(pool)
        fleet.spec, fleet.specs, fleet.model = pool, pool.targets, model
        served = {spec.id: (spec.url, spec.model or model) for spec in pool.targets if spec.kind == "engine"}
        if fleet.served != served:
            self.mirror.follow(fleet, served)
            fleet.served = served

    def _look(self, fleet: Fleet, now_ns: int) -> None:
        """Read the state that engine hosts report."""
        fleet.looked_ns = now_ns
        fleet.index.sweep()
        if self._hosts is None:
            return
        for replica in fleet.replicas:
            place = fleet.served.get(replica.id)
            if place is not None:
                self._look_at(replica, *place)

    def _look_at(self, replica: Replica, url: str, model: str) -> None:
        assert self._hosts is not None
        is_away = not self._hosts.is_ready(url, model)
        if is_away is not replica.is_known_away:
            replica.go_away(is_away)
        room = None if is_away else self._hosts.room(url, model)
        known = NO_ROOM_KNOWN
        if room is not None and room.max_sequences is not None:
            taken = replica.running + room.others_sequences
            if taken > _SEATS_SHARE * room.max_sequences or room.others_sequences:
                known = Room(room.max_sequences, room.others_sequences)
        if known is not NO_ROOM_KNOWN or replica.room is not NO_ROOM_KNOWN:
            replica.take_room(known)


def _candidates(fleet: Fleet, pool: PoolSpec, ranked: list[int], within: frozenset[str] | None) -> list[TargetSpec]:
    """Return the targets of places, best first; those that were not ranked follow.

    They are as in `pool`, which may be older than the fleet: a request's region pin was checked against it.
    """
    specs = fleet.specs
    found = [specs[place] for place in ranked]
    if pool.targets is not specs:
        own = {spec.id: spec for spec in pool.targets}
        found = [own[spec.id] for spec in found if spec.id in own]
    if len(found) < len(pool.targets):
        seen = {spec.id for spec in found}
        found += [spec for spec in pool.targets if spec.id not in seen]
    if within is not None:
        found = [spec for spec in found if spec.id in within]
    return found


def _sample(fleet: Fleet, demand: RoutingRequest, view: PoolView, chosen: str) -> Sample:
    predicted, cached = {}, {}
    for replica in fleet.replicas:
        held = min(view.cached_of(replica), demand.tokens)
        predicted[replica.id] = replica.wait_ns(view.now_ns) + max(demand.tokens - held, 1) * replica.prefill_ns
        cached[replica.id] = held
    return Sample(fleet.policy_name, chosen, demand.tokens, predicted, cached)
