"""Fields of failure settings and playbooks, for HTTP and the YAML file."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from contracts.serving.failures import FailurePolicy, Playbook, failure_policy, playbook_of

Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Retries = Annotated[int, Field(ge=0, le=10, strict=True)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Quantile = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class BreakerFields(BaseModel):
    """When a target's circuit opens, and how it recovers. See `contracts.serving.failures.BreakerPolicy`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    failures_in_a_row: Count = Field(default=5, description="Failures in a row that open it")
    failure_share: Share = Field(default=0.5, description="Share of failed requests in a window that opens it")
    least_requests: Count = Field(default=20, description="Minimum requests in a window for a share")
    window_seconds: Seconds = 30.0
    slow_factor: float | None = Field(
        default=5.0, gt=1, le=1_000, description="Times as slow as the pool's other targets that opens it; null: never"
    )
    slow_seconds: float = Field(default=2.0, ge=0, le=86_400, description="Minimum difference for that, in seconds")
    first_pause_seconds: Seconds = Field(
        default=1.0, description="Time until the first probe; doubled by each failed one"
    )
    longest_pause_seconds: Seconds = 30.0
    good_probes: Count = Field(default=1, description="Successful probes in a row that close it")
    ramp_seconds: float = Field(
        default=0.0, ge=0, le=86_400, description="Time in which its share of requests grows afterwards"
    )


class HedgeFields(BaseModel):
    """When a second target is called too. See `contracts.serving.failures.HedgePolicy`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    quantile: Quantile = Field(
        default=0.95, description="Quantile of the pool's times to first token after which one is late"
    )
    share: Share = Field(default=0.05, description="Maximum share of the pool's requests that are hedged")
    least_seconds: float = Field(
        default=0.05, ge=0, le=86_400, description="Minimum time after which a first token is late"
    )


class FailureFields(BaseModel):
    """What a pool does about failures; omitted fields have defaults. See `contracts.serving.failures.FailurePolicy`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    retries: Retries = Field(default=0, description="How often a request starts again after all targets failed")
    backoff_seconds: Seconds = Field(default=0.2, description="Maximum pause before the first retry")
    longest_backoff_seconds: Seconds = 5.0
    retry_share: Rate = Field(default=0.2, description="Additional attempts, as a share of the pool's requests")
    retries_per_second: Rate = Field(default=10.0, description="Plus this many per second")
    first_token_seconds: Seconds | None = Field(
        default=None,
        description="Maximum time to the first token of an attempt; complete answers are then requested as a stream",
    )
    between_tokens_seconds: Seconds | None = Field(
        default=None, description="Maximum time between two tokens; complete answers are then requested as a stream"
    )
    whole_answer_seconds: Seconds | None = Field(
        default=None,
        description="Maximum time of an attempt whose answer is not streamed, so that no token is seen before its end",
    )
    total_seconds: Seconds | None = Field(
        default=None, description="Maximum time of all attempts of a request together"
    )
    breaker: BreakerFields | None = Field(default_factory=BreakerFields, description="null: none")
    hedge: HedgeFields | None = Field(default=None, description="null: no hedging")
    when_all_away: Literal["call", "refuse"] = Field(
        default="call", description="Whether a request goes to a target with an open circuit if there is no other"
    )

    def stated(self) -> dict[str, Any]:
        """Return the stated fields, as plain data that `contracts.serving.failures.failure_policy` reads."""
        return self.model_dump(mode="json", exclude_unset=True)

    def policy(self) -> FailurePolicy:
        """Return the policy. Raises ConfigurationError if the fields are invalid."""
        return failure_policy(self.stated())


class PlaybookRules(BaseModel):
    """What happens while a whole provider is down. See `contracts.serving.failures.Playbook`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    then: list[Annotated[str, Field(min_length=1, max_length=63)]] = Field(
        default_factory=list, max_length=100, description="Providers that answer meanwhile, best first"
    )
    outage: BreakerFields = Field(default_factory=BreakerFields, description="Circuit breaker of the whole provider")

    def rules(self) -> dict[str, Any]:
        """Return the stated fields, as plain data that `contracts.serving.failures.playbook_of` reads."""
        return self.model_dump(mode="json", exclude_unset=True, exclude={"provider"})


class PlaybookFields(PlaybookRules):
    """A provider's playbook."""

    provider: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=63)]

    def playbook(self) -> Playbook:
        """Return the playbook of these fields. Raise ConfigurationError if they are invalid."""
        return playbook_of(self.provider, self.rules())
