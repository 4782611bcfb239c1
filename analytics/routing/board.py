"""Reads the Routing page's data from the store."""

from dataclasses import dataclass

from analytics.routing.answered import PrefixHits, read_answered
from analytics.routing.regret import Decision, PolicyRegret, regret_by_pool, worst_decisions
from analytics.routing.tries import Tries, read_tries
from analytics.routing.use import UseLine
from analytics.scope import Scope
from backends.store.client import StoreClient


@dataclass(frozen=True, slots=True)
class RoutingBoard:
    """Data of the Routing page, all for `scope.covered`."""

    scope: Scope
    lines: tuple[UseLine, ...]
    tries: tuple[Tries, ...]
    hits: tuple[PrefixHits, ...]
    regret: tuple[PolicyRegret, ...]
    decisions: tuple[Decision, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether no request reached a target."""
        return not self.lines

    @property
    def failed_tries(self) -> int:
        """Return the number of failed attempts of requests with several attempts."""
        return sum(one.count for one in self.tries if one.has_failed)

    @property
    def samples(self) -> int:
        """Return the number of sampled choices."""
        return sum(one.samples for one in self.regret)

    @property
    def mean_regret_ms(self) -> float | None:
        """Return the mean regret of all sampled choices in milliseconds; `None` if there is none."""
        return sum(one.mean_ms * one.samples for one in self.regret) / self.samples if self.samples else None


def routing_board(store: StoreClient, scope: Scope) -> RoutingBoard:
    """Read the data with four queries, or one if no request reached a target. Raises StoreUnavailable."""
    lines, hits = read_answered(store, scope)
    if not lines:
        return RoutingBoard(scope, (), (), (), (), ())
    regret = regret_by_pool(store, scope)
    return RoutingBoard(
        scope,
        lines,
        read_tries(store, scope),
        hits,
        regret,
        worst_decisions(store, scope) if regret else (),
    )
