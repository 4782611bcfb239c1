"""Rollouts of the YAML file, built and checked against the routes and models that they are about."""

from hashlib import blake2b
from typing import Final

from contracts.errors import ConfigurationError
from contracts.serving.rollout_checks import fault_of
from contracts.serving.rollouts import RolloutSpec, rollout_rules
from contracts.serving.route_checks import Serving
from gateway.config.entries import ConfigurationFile
from gateway.config.rules import Misplaced

_SALT_BYTES: Final = 16


def build_rollouts(file: ConfigurationFile, serving: Serving) -> dict[str, RolloutSpec]:
    """Build the rollouts, by route. Raises Misplaced on the first invalid one.

    Participants are drawn by the rollout's name: another name draws others.
    """
    found: dict[str, RolloutSpec] = {}
    for number, given in enumerate(file.rollouts):
        try:
            spec = RolloutSpec(
                id=given.name,
                route=given.route,
                incumbent=given.incumbent,
                candidate=given.candidate,
                rules=rollout_rules(given.rules()),
                salt=blake2b(given.name.encode(), digest_size=_SALT_BYTES).digest(),
            )
        except ConfigurationError as error:
            raise Misplaced(("rollouts", number), error.message) from error
        fault = fault_of(spec, serving)
        if fault is not None:
            raise Misplaced(("rollouts", number), fault.message)
        if spec.route in found:
            raise Misplaced(
                ("rollouts", number), f"route {spec.route!r} has the rollout {found[spec.route].id!r} already"
            )
        found[spec.route] = spec
    return found
