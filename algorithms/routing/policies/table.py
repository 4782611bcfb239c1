"""The policies by their name in a pool's configuration."""

from collections.abc import Callable, Mapping
from typing import Final

from algorithms.routing.policies.base import Policy, Random
from algorithms.routing.policies.consistent_hash import ConsistentHashPolicy
from algorithms.routing.policies.cost import CostPolicy
from algorithms.routing.policies.least_outstanding import LeastOutstandingPolicy
from algorithms.routing.policies.peak_ewma import PeakEwmaPolicy
from algorithms.routing.policies.random_choice import RandomPolicy
from algorithms.routing.policies.weighted import WeightedPolicy
from contracts.errors import ConfigurationError
from contracts.serving.pool_choices import POLICY_NAMES

POLICIES: Final[Mapping[str, Callable[[Random], Policy]]] = {
    "cost": CostPolicy,
    "least_outstanding": lambda random: LeastOutstandingPolicy(),
    "peak_ewma": lambda random: PeakEwmaPolicy(),
    "round_robin": lambda random: WeightedPolicy(),
    "consistent_hash": lambda random: ConsistentHashPolicy(),
    "random": RandomPolicy,
}


def policy_named(name: str, random: Random) -> Policy:
    """Return a new policy. Raises ConfigurationError if the name is unknown."""
    build = POLICIES.get(name)
    if build is None:
        raise ConfigurationError(f"no policy is called {name!r}; there are: {', '.join(POLICY_NAMES)}")
    return build(random)
