"""A route's sampling as people write it, over HTTP and in the YAML file."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from contracts.api.chat import ReasoningEffort

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
Stop = Annotated[str, Field(min_length=1, max_length=200)]


class SamplingFields(BaseModel):
    """Values of a request's fields, in the chat API's names; omitted ones are left to the caller."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    top_p: Share | None = None
    top_k: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    min_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=100, allow_inf_nan=False)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)
    stop: Stop | Annotated[list[Stop], Field(min_length=1, max_length=16)] | None = None
    max_tokens: int | None = Field(
        default=None, ge=1, le=2**31 - 1, description="Maximum output tokens of one answer, under any name"
    )
    reasoning_effort: ReasoningEffort | None = None

    def stated(self) -> dict[str, Any]:
        """Return the stated fields as plain data."""
        return self.model_dump(mode="json", exclude_none=True)
