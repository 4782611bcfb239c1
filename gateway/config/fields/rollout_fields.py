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
    """A share of those who may take part, and what has to have passed before the next."""

    percent: Percent = Field(description="Of conversations, else end users, else keys")
    min_minutes: float = Field(default=10.0, ge=0, le=100_000, allow_inf_nan=False)
    min_requests: int = Field(default=100, ge=0, le=1_000_000_000, description="Of the candidate, in this step")


class GuardFields(_Fields):
    """What the candidate may be worse by. `null`: by anything. See `contracts.serving.rollouts.RolloutGuards`."""

    window_seconds: int = Field(default=300, ge=10, le=86_400)
    min_requests: int = Field(default=50, ge=5, le=1_000_000, description="Of either arm, before it is judged")
    max_error_increase: Increase | None = Field(default=0.02, description="Share of requests, 0 to 1")
    max_refusal_increase: Increase | None = Field(default=0.05, description="Share of answers, 0 to 1")
    max_ttft_ratio: Ratio | None = Field(default=1.5, description="Of the 95th percentiles")
    max_inter_token_ratio: Ratio | None = Field(default=1.5, description="Of the 95th percentiles")
    max_duration_ratio: Ratio | None = Field(default=2.0, description="Of the 95th percentiles")
    max_cost_ratio: Ratio | None = Field(default=1.5, description="Of the mean costs")
    min_difference_ms: float = Field(
        default=20.0, ge=0, le=600_000, allow_inf_nan=False, description="Times that differ by less are alike"
    )


class ShadowFields(_Fields):
    """Copies that go to the candidate as well, and whose answers nobody sees."""

    percent: Percent = Field(description="Of the incumbent's requests")
    max_usd_per_day: Decimal = Field(gt=0, le=1_000_000, decimal_places=12, description="The platform pays")
    max_concurrent: int = Field(default=4, ge=1, le=256, description="At each gateway")
    by_meaning: bool = Field(default=False, description="Compare answers by the embedder, else by their words")


class RolloutFields(_Fields):
    """What is asked of a rollout. See `contracts.serving.rollouts.RolloutRules`."""

    steps: Annotated[list[StepFields], Field(max_length=MAX_STEPS)] = Field(
        default=[StepFields(percent=step.percent) for step in DEFAULT_STEPS],
        description="Each with a greater share than the one before; none: shadow only",
    )
    guards: GuardFields = GuardFields()
    shadow: ShadowFields | None = None
    tenants: Words = Field(default=[], description="Only these take part")
    not_tenants: Words = Field(default=[], description="These never do")
    promotes: bool = Field(default=False, description="The last step's end puts the candidate in the route")

    def rules(self) -> dict[str, Any]:
        """Return all of it, as plain data."""
        return self.model_dump(mode="json", include=set(RolloutFields.model_fields))
