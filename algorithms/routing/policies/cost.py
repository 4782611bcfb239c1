"""The default policy: the replica that serves a request soonest and delays later requests least.

Cost = predicted wait + the uncached tokens at the replica's measured pace + how much slower its answers would come.
Every decision has a load term, so one hot replica does not break other requests' affinity, and a prefix that all
requests share attracts them only to replicas where waiting is shorter than recomputing it. If requests repeatedly wait
for a prefix, it is computed on another replica once they have waited as long in total as that takes (ski rental; Karlin
and others).

If requests wait on all replicas, computing on one delays all later requests until the queues are empty; by Little's law
these are as many as wait now. So computing gets that much more weight, and cached prefixes are preferred while the pool
is overloaded.
"""

from collections.abc import Collection, Sequence
from math import inf
from typing import Final

from algorithms.routing.policies.base import Random
from algorithms.routing.policies.waits import WaitBook
from algorithms.routing.policy_input import PoolView, RoutingRequest
from algorithms.routing.replica import AWAY_NS

_PREFILL_WEIGHT: Final = 1.15  # weight of computing, which delays later requests, while some replica is idle
_NEAR: Final = 0.02  # of the whole prompt's cost: smaller differences count as equal, and past work decides
_SESSION: Final = 0.05  # of the whole prompt's cost: bonus for having served the session last
_BOUND: Final = 1.1  # of the mean recent work: above it another replica is preferred that only has to compute
_SLACK: Final = 2.0  # times the prompt's own work, allowed in addition
_LARGE: Final = 24  # replicas; in larger pools only some are compared
_HOLDERS: Final = 8
_DRAWN: Final = 8
_NEVER: Final = inf
_MANY: Final = 1 << 30


class CostPolicy:
    """Ranks by cost; in a large pool among the replicas with most of the prompt cached and a few random ones."""

    wants_prefixes = True

    def __init__(self, random: Random) -> None:
        self._random = random
        self._waits = WaitBook()

    def rank(self, request: RoutingRequest, view: PoolView) -> list[int]:
        """Return the indexes of the compared replicas, cheapest first; all of them if those compared first are away."""
        places = range(len(view.replicas)) if view.allowed is None else view.allowed
        if len(places) > _LARGE:
            ranked = self._ranked(request, view, self._drawn(view, places))
            if not view.replicas[ranked[0]].is_suspect(view.now_ns):
                return ranked
        return self._ranked(request, view, places) if places else []

    def _ranked(self, request: RoutingRequest, view: PoolView, places: Collection[int]) -> list[int]:
        costs, held, weight = self.costs_ns(request, view, places)
        ranked = sorted(places, key=costs.__getitem__)
        best = ranked[0]
        first = None
        if best in held and (view.replicas[best].prefilling or view.replicas[best].blind_running):
            first = self._copied(request, view, ranked, costs, held, weight)
        if first is None:
            first = self._preferred(request, view, ranked, costs, weight)
        if first != best:
            ranked.remove(first)
            ranked.insert(0, first)
        return ranked

    def costs_ns(
        self, request: RoutingRequest, view: PoolView, places: Collection[int]
    ) -> tuple[list[float], dict[int, int], float]:
        """Return the predicted cost and the cached tokens by replica index, and the weight of computing relative to
        waiting.

        Replicas that are not in `places` have infinite cost.
        """
        # Convert to float once, because converting long integers for each addition is slow.
        now, tokens, output = float(view.now_ns), request.tokens, float(request.output_tokens)
        replicas = view.replicas
        are_all = len(places) == len(replicas)
        looked_at = replicas if are_all else [replicas[place] for place in places]
        costs: list[float] = []
        least = _MANY  # lowest number of requests waiting for their prefill on any replica
        for replica in looked_at:
            if replica.is_plain:  # the same as `load_ns`, without a call
                waiting = len(replica.prefilling)
                if now <= replica.due_ns:
                    load = replica.free_ns - now + output * replica.decode_ns
                else:
                    load = replica.late_rate * (now - replica.late_from_ns) + now - replica.due_ns
                    load += output * replica.decode_ns
            elif replica.is_busy:
                load = replica.load_ns(now, output)
                waiting = len(replica.prefilling) if load < AWAY_NS else _MANY
            else:
                load, waiting = 0.0, 0
            if waiting < least:
                least = waiting
            costs.append(load)
        weight = _PREFILL_WEIGHT if least == _MANY else _PREFILL_WEIGHT + least
        whole = weight * tokens
        costs = [load + whole * replica.prefill_ns for load, replica in zip(costs, looked_at, strict=True)]
        known = -1
        if not are_all:
            known, found, costs = sum([one.bit for one in looked_at]), costs, [_NEVER] * len(replicas)
            for place, cost in zip(places, found, strict=True):
                costs[place] = cost
        held: dict[int, int] = {}
        for bits, cached in view.matches:
            bits &= known
            saved = weight * (cached if cached < tokens else tokens - 1)
            while bits:
                bit = bits & -bits
                bits ^= bit
                place = view.places[bit]
                held[place] = cached
                costs[place] -= saved * replicas[place].prefill_ns
        last = view.last_place
        if last is not None and costs[last] < _NEVER:
            costs[last] -= _SESSION * tokens * replicas[last].prefill_ns
        return costs, held, weight

    def _copied(
        self,
        request: RoutingRequest,
        view: PoolView,
        ranked: list[int],
        costs: list[float],
        held: dict[int, int],
        weight: float,
    ) -> int | None:
        """Return the replica on which to recompute the best one's cached prefix, if requests waited long enough; else
        `None`.
        """
        best, found = ranked[0], None
        depth = held[best]
        for place in ranked:
            if held.get(place, 0) < depth:
                found = place
                break
        if found is None:
            return None
        copying = weight * view.replicas[found].prefill_ns * (depth - held.get(found, 0))
        saved = copying - (costs[found] - costs[best])  # of waiting
        if saved <= 0 or costs[found] >= AWAY_NS:
            return None
        waited_for = request.keys[min(depth // request.block_tokens, len(request.keys)) - 1]
        return found if self._waits.add(waited_for, saved, copying) else None

    def _preferred(
        self, request: RoutingRequest, view: PoolView, ranked: list[int], costs: list[float], weight: float
    ) -> int:
        """Return the replica to try first: among equal costs the one with least past work, within the work bound.

        A replica above the bound is skipped for one that only has to compute the prompt, not for one that is slow or
        busier.
        """
        replicas, work, best = view.replicas, view.work, ranked[0]
        whole, of = request.tokens * replicas[best].prefill_ns, work.of
        near = costs[best] + _NEAR * whole
        if view.allowed is None:
            bound = _BOUND * work.total / len(replicas)
        else:  # only the allowed replicas
            given = sum([of[replicas[place].id] for place in view.allowed])
            bound = _BOUND * given / len(view.allowed)
        replica = replicas[best]
        if of[replica.id] > bound * replica.weight:
            bound += _SLACK * request.tokens * work.weight(view.now_ns)  # matters if there was little work so far
        if of[replica.id] <= bound * replica.weight and (len(ranked) == 1 or costs[ranked[1]] > near):
            return best  # the usual case: no other has an equal cost
        dearest = costs[best] + weight * whole
        chosen, least = best, _NEVER
        for place in ranked:
            cost = costs[place]
            if cost > near and (least < _NEVER or cost > dearest):
                break
            replica = replicas[place]
            done = of[replica.id] / replica.weight
            if done < least and done <= bound:
                chosen, least = place, done
        return chosen

    def _drawn(self, view: PoolView, places: Sequence[int]) -> dict[int, None]:
        drawn = dict.fromkeys(view.holders(_HOLDERS))
        count = len(places)
        for _ in range(_DRAWN):
            drawn[places[int(self._random() * count)]] = None
        return drawn
