"""What routers elsewhere do, behind the interface of our policies: to be compared with, and served by no gateway."""

from algorithms.routing.policies.base import by_score
from algorithms.routing.policy_input import PoolView, RoutingRequest


class LongestPrefixPolicy:
    """The replica that has the most of a prompt cached, whatever it has to do; of equal ones who has worked less."""

    wants_prefixes = True

    def rank(self, ask: RoutingRequest, view: PoolView) -> list[int]:
        """Return the places, the deepest holder first."""
        return by_score([-float(view.cached_of(one)) for one in view.replicas], view)


class QueuePolicy:
    """The fewest tokens to compute, what waits there and what is not cached together; of equal ones the first."""

    wants_prefixes = True

    def rank(self, ask: RoutingRequest, view: PoolView) -> list[int]:
        """Return the places, the shortest queue first."""
        now, replicas = view.now_ns, view.replicas
        tokens = [one.queued_tokens + ask.tokens - min(view.cached_of(one), ask.tokens) for one in replicas]
        return sorted(range(len(replicas)), key=lambda place: (replicas[place].is_suspect(now), tokens[place]))
