"""The scopes of keys and identity providers as fields of a request's body."""

from typing import Annotated

from pydantic import Field, StringConstraints

from contracts.access.endpoints import Endpoint
from contracts.api.chat import ReasoningEffort
from contracts.rules.limits import PriorityClass
from gateway.control.fields import Body, ModelId

Network = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]


class ScopeFields(Body):
    """What may be used, and how; null restricts nothing."""

    models: list[ModelId] | None = Field(default=None, max_length=200, description="May use only these; null: all")
    endpoints: list[Endpoint] | None = Field(
        default=None, max_length=50, description="May use only these, such as `chat.completions`; null: all"
    )
    addresses: list[Network] | None = Field(
        default=None, max_length=100, description="Usable only from these networks, such as 10.0.0.0/8; null: anywhere"
    )
    priority: PriorityClass | None = Field(
        default=None, description="The best class it may ask for, and has when it asks for none; null: standard"
    )
    max_reasoning_effort: ReasoningEffort | None = Field(default=None, description="Null: any")
    max_thinking_tokens: int | None = Field(
        default=None, ge=0, le=10_000_000, description="Reasoning tokens of one answer; null: any number"
    )
