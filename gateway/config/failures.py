"""The failure policies in the YAML file: of pools, and of whole providers."""

from collections.abc import Mapping

from contracts.errors import ConfigurationError
from contracts.serving.configuration import PoolSpec
from contracts.serving.failures import DEFAULT_FAILURES, FailurePolicy, Playbook
from gateway.config.entries import ConfigurationFile, ConfiguredPool
from gateway.config.rules import Misplaced


def pool_failures(number: int, pool: ConfiguredPool) -> FailurePolicy:
    """Return a pool's failure policy. Raises Misplaced."""
    try:
        return DEFAULT_FAILURES if pool.failures is None else pool.failures.policy()
    except ConfigurationError as error:
        raise Misplaced(("pools", number, "failures"), error.message) from error


def build_playbooks(parsed: ConfigurationFile, pools: Mapping[str, PoolSpec]) -> dict[str, Playbook]:
    """Return the playbooks by provider. Raises Misplaced if one names a provider that no target has."""
    providers = {target.provider or target.kind for pool in pools.values() for target in pool.targets}
    playbooks: dict[str, Playbook] = {}
    for number, given in enumerate(parsed.playbooks):
        try:
            playbook = given.playbook()
        except ConfigurationError as error:
            raise Misplaced(("playbooks", number), error.message) from error
        for field, name in [("provider", playbook.provider), *[("then", name) for name in playbook.then]]:
            if name not in providers:
                known = ", ".join(sorted(providers))
                raise Misplaced(("playbooks", number, field), f"no target is of provider {name!r}; known: {known}")
        playbooks[playbook.provider] = playbook
    return playbooks
