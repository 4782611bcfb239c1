"""Which targets may answer, best first: by the pool's policy, from what is known of its replicas."""

import random
from collections.abc import Callable
from typing import Final

from backends.llm.base import ModelCall
from backends.llm.engine_hosts import EngineHosts
from contracts.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from gateway.clock import Clock
from gateway.routing.ask import Ask, Sight
from gateway.routing.asks import Finder, ask_of
from gateway.routing.cache_mirror import CacheMirror
from gateway.routing.choice import Choice
from gateway.routing.fleet import Fleet
from gateway.routing.policies.table import policy_named
from gateway.routing.regret import Sample
from gateway.routing.replica import NO_ROOM_KNOWN, Replica, Room

PLAIN_POLICY: Final = "round_robin"
_LOOK_NS: Final = 50_000_000  # between two looks at what hosts say of themselves, which they do once a second
_SEATS_SHARE: Final = 0.75  # taken, from which on an engine's seats are looked at

Away = Callable[[TargetSpec], bool]


class Router:
    """Chooses among a pool's targets, and keeps what is known of them as long as they are configured.

    `targets` gives their adapters, `hosts` the engine hosts' state, `mirror` follows their caches; `sample_share` of
    the requests keep their alternatives' predictions for their record.
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
        self._credit: dict[tuple[str, str], int] = {}
        self._fleets: dict[str, Fleet] = {}
        self.mirror = mirror or CacheMirror()
        self.is_away: Away | None = None

    # the plain way

    @staticmethod
    def is_plain(pool: PoolSpec) -> bool:
        """Say whether `choose` is all there is to it: there is one target, or they are asked in turn."""
        return len(pool.targets) == 1 or pool.policy == PLAIN_POLICY

    def choose(self, model: ModelSpec, snapshot: Snapshot) -> list[TargetSpec]:
        """Give the pool's targets in the order to try them, by their weights.

        Smooth weighted round robin (nginx, 2012): each turn every target gains its weight, the richest is chosen
        and pays the sum of weights. Over sum-of-weights turns each is first exactly weight times.
        """
        targets = snapshot.pools[model.pool].targets
        if len(targets) == 1:
            return [targets[0]]
        total = 0
        for target in targets:
            key = (target.pool, target.id)
            self._credit[key] = self._credit.get(key, 0) + target.weight
            total += target.weight
        ranked = sorted(targets, key=lambda target: -self._credit[target.pool, target.id])
        self._credit[ranked[0].pool, ranked[0].id] -= total
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
        """Choose for a request: its candidates, best first, and what counts them while they are asked.

        `output_tokens` is what the answer may come to, `within` the ids of the targets that may see the prompt.
        """
        pool = snapshot.pools[model.pool]
        if self.is_plain(pool):
            found = self.choose(model, snapshot)
            return Choice(found if within is None else [target for target in found if target.id in within])
        specs = pool.targets if within is None else tuple(spec for spec in pool.targets if spec.id in within)
        ask = await ask_of(call, specs, self._targets, conversation_id, output_tokens)
        return self.place(model, pool, ask, within)

    def place(self, model: ModelSpec, pool: PoolSpec, ask: Ask, within: frozenset[str] | None = None) -> Choice:
        """Choose for a request of which all is known that can be."""
        fleet, now_ns = self._fleet(pool, model), self._clock.monotonic_ns()
        if now_ns - fleet.looked_ns > _LOOK_NS:
            self._look(fleet, now_ns)
        sight = fleet.sight(ask, now_ns)
        candidates = _candidates(fleet, fleet.rank(ask, sight), within, self.is_away)
        sample = None
        if self._sample_share and candidates and self._draw() < self._sample_share:
            sample = _sample(fleet, ask, sight, candidates[0].id)
        return Choice(candidates, fleet, ask, sight, self._clock, sample)

    def least_wait_ns(self, pool: PoolSpec) -> int | None:
        """Predict how long a request that came now would wait at the best of a pool's targets, of these alone.

        `None` where none of them is followed, as in pools that are asked in turn.
        """
        fleet = self._fleets.get(pool.id)
        if fleet is None:
            return None
        ids, now_ns = {target.id for target in pool.targets}, self._clock.monotonic_ns()
        waits = [replica.wait_ns(now_ns) for replica in fleet.replicas if replica.id in ids]
        return round(min(waits)) if waits else None

    def sync(self, snapshot: Snapshot) -> None:
        """Follow a snapshot: forget pools that are gone. Those that stay follow theirs when they are asked next."""
        for gone in self._fleets.keys() - snapshot.pools.keys():
            self.mirror.drop(self._fleets.pop(gone))

    def status(self) -> dict[str, object]:
        """Give what GET /ready shows: the replicas of every pool that is chosen from by a policy, and the caches."""
        now_ns = self._clock.monotonic_ns()
        return {
            "pools": {name: fleet.status(now_ns) for name, fleet in sorted(self._fleets.items())},
            "caches": self.mirror.status(),
        }

    def _fleet(self, pool: PoolSpec, model: ModelSpec) -> Fleet:
        fleet = self._fleets.get(pool.id)
        if fleet is None or fleet.policy_name != pool.policy:
            if fleet is not None:
                self.mirror.drop(fleet)
            fleet = self._fleets[pool.id] = Fleet(policy_named(pool.policy, self._draw), policy_name=pool.policy)
        if fleet.spec is not pool:
            fleet.follow_pool(pool)
            served = {spec.id: (spec.url, spec.model or model.id) for spec in pool.targets if spec.kind == "engine"}
            self.mirror.follow(fleet, served)
            fleet.served = served
        return fleet

    def _look(self, fleet: Fleet, now_ns: int) -> None:
        """Look at what engine hosts say of themselves."""
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


def _candidates(
    fleet: Fleet, ranked: list[int], within: frozenset[str] | None, is_away: Away | None
) -> list[TargetSpec]:
    """Give the targets of places, best first; those that were not looked at follow, those that are away come last."""
    specs = fleet.specs
    found = [specs[place] for place in ranked]
    if len(ranked) < len(specs):
        seen = set(ranked)
        found += [spec for place, spec in enumerate(specs) if place not in seen]
    if within is not None:
        found = [spec for spec in found if spec.id in within]
    if is_away is not None and any(map(is_away, found)):
        found.sort(key=is_away)
    return found


def _sample(fleet: Fleet, ask: Ask, sight: Sight, chosen: str) -> Sample:
    predicted, cached = {}, {}
    for replica in fleet.replicas:
        held = min(sight.cached_of(replica), ask.tokens)
        predicted[replica.id] = replica.wait_ns(sight.now_ns) + max(ask.tokens - held, 1) * replica.prefill_ns
        cached[replica.id] = held
    return Sample(fleet.policy_name, chosen, ask.tokens, predicted, cached)
