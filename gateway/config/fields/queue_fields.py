"""A pool's queue as people write it, over HTTP and in the YAML file."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from contracts.rules.limits import PriorityClass, QueueSpec

Count = Annotated[int, Field(ge=1, le=1_000_000_000_000, strict=True)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
TokenWeight = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]


class QueueFields(BaseModel):
    """How requests wait in front of a pool; omitted fields have defaults. See `contracts.rules.limits.QueueSpec`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_in_flight: Count | None = Field(default=None, description="Maximum concurrent requests of the pool")
    max_tokens_in_flight: Count | None = Field(
        default=None, description="Maximum prompt and reserved output tokens in progress at the pool"
    )
    max_waiting: Count = Field(default=10_000, description="Requests that may wait; more are refused with 503")
    tenant_max_in_flight: Share = Field(default=1.0, description="One tenant's share of max_in_flight")
    tenant_max_tokens: Share = Field(default=1.0, description="One tenant's share of max_tokens_in_flight")
    ageing_seconds: Seconds = Field(
        default=10.0, description="Waiting this long raises a request by one priority class"
    )
    long_prompt_tokens: Count | None = Field(default=None, description="A longer prompt takes a long-prompt slot")
    long_prompt_slots: Count = 1
    deadline_seconds: dict[PriorityClass, Seconds] = Field(
        default_factory=dict,
        description="Maximum wait by class; requests that wait longer are refused, the lowest class first",
    )
    input_weight: TokenWeight = Field(default=1.0, description="Weight of an input token in a tenant's share")
    output_weight: TokenWeight = Field(default=2.0, description="Weight of an output token in a tenant's share")

    def spec(self) -> QueueSpec:
        """Return the queue specification. Raises ConfigurationError if the fields are invalid."""
        return QueueSpec(**self.model_dump())
