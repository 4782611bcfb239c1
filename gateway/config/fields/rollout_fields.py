"""A rollout as people write it, over HTTP and in the YAML file."""

from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from contracts.serving.rollouts import DEFAULT_STEPS, MAX_STEPS

Percent = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=1, le=1_000, allow_inf_nan=False)]
Increase = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Word = Annotated[str, Field(min_length=1, max_length=200)]
Words = Annotated[list[Word], Field(max_length=100)]


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StepFields(_Fields):
    """A share of the participants, and the conditions for the next step."""

    percent: Percent = Field(description="Percentage of conversations, else end users, else keys")
    min_minutes: float = Field(default=10.0, ge=0, le=100_000, allow_inf_nan=False)
    min_requests: int = Field(
        default=100, ge=0, le=1_000_000_000, description="Minimum requests of the candidate in this step"
    )


class GuardFields(_Fields):
    """How much worse the candidate may be. `null`: unlimited. See `contracts.serving.rollouts.RolloutGuards`."""

    window_seconds: int = Field(default=300, ge=10, le=86_400)
    min_requests: int = Field(
        default=50, ge=5, le=1_000_000, description="Minimum requests of each arm before they are compared"
    )
    max_error_increase: Increase | None = Field(
        default=0.02, description="Maximum increase of the share of failed requests, 0 to 1"
    )
    max_refusal_increase: Increase | None = Field(
        default=0.05, description="Maximum increase of the share of refusals, 0 to 1"
    )
    max_ttft_ratio: Ratio | None = Field(default=1.5, description="Maximum ratio of the 95th percentiles")
    max_inter_token_ratio: Ratio | None = Field(default=1.5, description="Maximum ratio of the 95th percentiles")
    max_duration_ratio: Ratio | None = Field(default=2.0, description="Maximum ratio of the 95th percentiles")
    max_cost_ratio: Ratio | None = Field(default=1.5, description="Maximum ratio of the mean costs")
    min_difference_ms: float = Field(
        default=20.0, ge=0, le=600_000, allow_inf_nan=False, description="Times that differ by less count as equal"
    )


class ShadowFields(_Fields):
    """Copies of requests that are sent to the candidate in addition, and whose answers are discarded."""

    percent: Percent = Field(description="Percentage of the incumbent's requests")
    max_usd_per_day: Decimal = Field(
        gt=0, le=1_000_000, decimal_places=12, description="Maximum cost a day in USD; no tenant pays it"
    )
    max_concurrent: int = Field(default=4, ge=1, le=256, description="Maximum concurrent copies at each gateway")
    by_meaning: bool = Field(default=False, description="Compare answers by the embedder, else by their words")


class RolloutFields(_Fields):
    """The settings of a rollout. See `contracts.serving.rollouts.RolloutRules`."""

    steps: Annotated[list[StepFields], Field(max_length=MAX_STEPS)] = Field(
        default=[StepFields(percent=step.percent) for step in DEFAULT_STEPS],
        description="Steps with rising shares; empty: shadow only",
    )
    guards: GuardFields = GuardFields()
    shadow: ShadowFields | None = None
    tenants: Words = Field(default=[], description="Only these tenants take part")
    not_tenants: Words = Field(default=[], description="Tenants that never take part")
    promotes: bool = Field(default=False, description="Replace the incumbent on the route after the last step")

    def rules(self) -> dict[str, Any]:
        """Return all settings as plain data."""
        return self.model_dump(mode="json", include=set(RolloutFields.model_fields))
