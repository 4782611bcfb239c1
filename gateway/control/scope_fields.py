"""The scopes of keys and identity providers as fields of a request's body."""

from typing import Annotated

from pydantic import Field, StringConstraints

from contracts.access.endpoints import Endpoint
from contracts.api.chat import ReasoningEffort
from contracts.rules.limits import PriorityClass
from gateway.control.fields import Body, ModelId

Network = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]


class ScopeFields(Body):
    """Restrictions of a key; null: no restriction."""

    models: list[ModelId] | None = Field(
        default=None, max_length=200, description="Allowed models and routes; null: all"
    )
    endpoints: list[Endpoint] | None = Field(
        default=None, max_length=50, description="Allowed endpoints, such as `chat.completions`; null: all"
    )
    addresses: list[Network] | None = Field(
        default=None, max_length=100, description="Usable only from these networks, such as 10.0.0.0/8; null: anywhere"
    )
    priority: PriorityClass | None = Field(
        default=None, description="Highest priority class, and its default; null: standard"
    )
    max_reasoning_effort: ReasoningEffort | None = Field(
        default=None, description="Highest reasoning effort; null: any"
    )
    max_thinking_tokens: int | None = Field(
        default=None, ge=0, le=10_000_000, description="Reasoning tokens of one answer; null: any number"
    )
