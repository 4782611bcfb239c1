"""Facts that a route's conditions use: caller, size, time, region, and the current state of its models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from contracts.rules.holds import HoldSpec
from contracts.serving.configuration import ModelSpec
from contracts.serving.routes import Complexity
from gateway.routing.routes.route_plan import Leg


@dataclass(frozen=True, slots=True)
class Reading:
    """What a route has read the prompt as. `None`: it could not tell."""

    intent: str | None = None
    complexity: Complexity | None = None


UNREAD: Final = Reading()


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of a request before any model. `region` is where the gateway stands; times are Unix ns.

    `output_limit` is the most tokens that the caller wants in one choice, `latency_budget_ms` within
    what it wants the answer. `readings` are by the route that read, `holds`
    what objectives in danger hold back, `route` what was asked for.
    """

    tenant: str
    at_ns: int
    tags: Mapping[str, str] = field(default_factory=dict)
    region: str = ""
    conversation: str = ""
    output_limit: int | None = None
    latency_budget_ms: int | None = None
    readings: Mapping[str, Reading] = field(default_factory=dict)
    holds: Sequence[HoldSpec] = ()
    route: str = ""


class Standing(Protocol):
    """How a model would do with the request at present. `None`: not known."""

    def prompt_tokens(self, model: ModelSpec) -> int | None:
        """Return how many tokens the prompt has, or is estimated to have, for this model."""

    def budget_left(self, model: ModelSpec) -> float | None:
        """Return the least share (0 to 1) that a budget covering the request has left; `None`: no budget does."""

    def cost_pico_usd(self, model: ModelSpec) -> int | None:
        """Return what the request may cost at most, as it would be reserved; `None`: the model has no price."""

    def ttft_seconds(self, model: ModelSpec) -> float | None:
        """Return within which time the model's recent answers mostly began."""

    def answer_seconds(self, leg: Leg) -> float | None:
        """Return how long the whole answer is predicted to take there."""

    def may_probe(self, model: ModelSpec) -> bool:
        """Return whether a probe of a model whose answers come late is due, and this request may be it."""

    def begin_probe(self, model: ModelSpec) -> None:
        """Record that the request is led to a late model as its probe."""

    def leave_out(self, model: ModelSpec) -> None:
        """Count that the request is led elsewhere because the model is late."""
