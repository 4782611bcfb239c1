"""Facts that a route's conditions use: caller, size, time, region, and the current state of its models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from contracts.rules.holds import HoldSpec
from contracts.serving.configuration import ModelSpec
from contracts.serving.routes import Complexity
from gateway.routing.routes.route_plan import RouteCandidate


@dataclass(frozen=True, slots=True)
class Reading:
    """What a route has classified the prompt as. `None`: it abstained."""

    intent: str | None = None
    complexity: Complexity | None = None


UNREAD: Final = Reading()


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What is known of a request before any model. `region` is the gateway's; times are Unix nanoseconds.

    `output_limit` is the maximum tokens of one choice that the caller asks for, `latency_budget_ms` the time in which
    it wants the answer. `readings` are by the route that classified the prompt, `holds` what objectives at risk hold
    back, `route` the requested name.
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


class ModelState(Protocol):
    """A model's current state for the request. `None`: unknown."""

    def prompt_tokens(self, model: ModelSpec) -> int | None:
        """Return the prompt's number of tokens, counted or estimated, for this model."""

    def budget_left(self, model: ModelSpec) -> float | None:
        """Return the smallest share (0 to 1) that is left of a budget covering the request; `None`: no budget covers
        it.
        """

    def cost_pico_usd(self, model: ModelSpec) -> int | None:
        """Return the request's maximum cost, as it would be reserved; `None`: the model has no price."""

    def ttft_seconds(self, model: ModelSpec) -> float | None:
        """Return the time within which most of the model's recent answers started, in seconds."""

    def answer_seconds(self, leg: RouteCandidate) -> float | None:
        """Return the predicted time of the complete answer there, in seconds."""

    def may_probe(self, model: ModelSpec) -> bool:
        """Return whether a probe of a model with late answers is due, and this request may be it."""

    def begin_probe(self, model: ModelSpec) -> None:
        """Record that the request goes to a late model as its probe."""

    def leave_out(self, model: ModelSpec) -> None:
        """Count that the request goes elsewhere because the model is late."""
