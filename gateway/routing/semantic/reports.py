"""Accuracy of a route's examples by cross-validation."""

import msgspec

from gateway.routing.semantic.tally import Tally


class IntentReport(msgspec.Struct, frozen=True):
    """How well the examples separate the intents.

    `others` and `everyday` are the shares left to the default: of the route's own examples of no intent, and of the
    prompts of all kinds that come with Tollkeeper; `None` if there are none.
    """

    thresholds: dict[str, float]
    calibrated: float | None  # the threshold of intents without their own; `None`: each has one
    held_out: Tally
    others: float | None
    everyday: float | None


class ComplexityReport(msgspec.Struct, frozen=True):
    """How well the examples separate complex from simple prompts."""

    threshold: float
    is_calibrated: bool
    examples: int
    held_out: Tally


class TrainingReport(msgspec.Struct, frozen=True):
    """Both reports; `None`: the route does not use that classifier."""

    intents: IntentReport | None
    complexity: ComplexityReport | None
