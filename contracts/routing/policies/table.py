"""The policies by the name that a pool's configuration gives."""

from collections.abc import Callable, Mapping
from typing import Final

from contracts.errors import ConfigurationError
from contracts.routing.policies.base import Policy, Random
from contracts.routing.policies.consistent_hash import ConsistentHashPolicy
from contracts.routing.policies.cost import CostPolicy
from contracts.routing.policies.least_outstanding import LeastOutstandingPolicy
from contracts.routing.policies.peak_ewma import PeakEwmaPolicy
from contracts.routing.policies.random_choice import RandomPolicy
from contracts.routing.policies.weighted import WeightedPolicy

_POLICIES: Final[Mapping[str, Callable[[Random], Policy]]] = {
    "cost": CostPolicy,
    "least_outstanding": lambda random: LeastOutstandingPolicy(),
    "peak_ewma": lambda random: PeakEwmaPolicy(),
    "round_robin": lambda random: WeightedPolicy(),
    "consistent_hash": lambda random: ConsistentHashPolicy(),
    "random": RandomPolicy,
}
POLICY_NAMES: Final = tuple(_POLICIES)


def policy_named(name: str, random: Random) -> Policy:
    """Build a policy. Raises ConfigurationError on a name that none has."""
    build = _POLICIES.get(name)
    if build is None:
        raise ConfigurationError(f"no policy is called {name!r}; there are: {', '.join(POLICY_NAMES)}")
    return build(random)
