"""A route as people write it, over HTTP and in the YAML file."""

from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from contracts.serving.routes import MAX_ENTRIES, MAX_WEIGHT, Complexity, Day, RouteSpec, route_spec
from gateway.config.fields.cache_fields import CacheFields

Tokens = Annotated[int, Field(ge=0, le=1_000_000_000)]
Milliseconds = Annotated[int, Field(ge=1, le=86_400_000)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Usd = Annotated[Decimal, Field(gt=0, le=1_000_000, decimal_places=12, allow_inf_nan=False)]
Word = Annotated[str, Field(min_length=1, max_length=200)]
Words = Annotated[list[Word], Field(max_length=100)]


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ConditionFields(_Fields):
    """When an entry may be used: all stated conditions must be met. See `contracts.serving.routes.Condition`."""

    tenants: Words = []
    tags: Annotated[dict[Word, Word], Field(max_length=16)] = Field(default={}, description="'*' is any value")
    min_prompt_tokens: Tokens | None = None
    max_prompt_tokens: Tokens | None = None
    regions: Words = Field(default=[], description="The gateway's region: its TOLLKEEPER_REGION")
    days: list[Day] = []
    hours: str = Field(default="", max_length=20, description="Such as 08:00-18:00, or 22:00-06:00")
    time_zone: str = Field(default="UTC", max_length=64)
    min_budget_left: Share | None = Field(
        default=None, description="Minimum remaining share of every budget that covers the request"
    )
    max_cost_usd: Usd | None = Field(default=None, description="Upper bound of the request's maximum cost, as reserved")
    ttft_objective_ms: Milliseconds | None = Field(
        default=None, description="Maximum time to first token of the model's recent answers, in ms"
    )
    slo_headroom: Share | None = Field(default=None, description="Share of the objective that must be left as headroom")
    intent: Word | None = Field(default=None, description="The prompt's class by `semantic`")
    complexity: Complexity | None = None


class RouteEntryFields(_Fields):
    """One entry of a route: it leads to a model or to another route."""

    model: str = Field(default="", max_length=200)
    route: str = Field(default="", max_length=200)
    label: str = Field(default="", max_length=200, description="Its name in decisions; empty: the model's")
    weight: int = Field(default=1, le=MAX_WEIGHT)
    provider: str = Field(default="", max_length=63, description="Use only this provider's targets")
    regions: Words = Field(default=[], description="Use only targets in these regions")
    when: ConditionFields = ConditionFields()


class CascadeFields(_Fields):
    """The entries are tried in order until an answer is good enough. See `contracts.serving.routes.CascadePolicy`."""

    min_mean_logprob: float | None = Field(default=None, allow_inf_nan=False, description="-100 to 0")
    on_refusal: bool = True
    on_schema_failure: bool = True
    latency_budget_ms: Milliseconds | None = None
    max_cost_usd: Usd | None = None


class RouteFields(_Fields):
    """The models and routes that a route's name leads to. See `contracts.serving.routes.RouteSpec`."""

    choose: list[RouteEntryFields] = Field(
        max_length=MAX_ENTRIES, description="Entries that share the requests by weight"
    )
    fallbacks: list[RouteEntryFields] = Field(
        default=[], max_length=MAX_ENTRIES, description="Entries that follow, in order"
    )
    regions: Words = Field(default=[], description="Requests never leave these regions")
    latency_budget_ms: Milliseconds | None = Field(
        default=None, description="Entries that are predicted to take longer go last"
    )
    refuses_unmatched: bool = Field(default=False, description="Refuse requests that meet no entry's conditions")
    cascade: CascadeFields | None = None
    semantic: dict[str, Any] | None = Field(default=None, description="How intents and complexity are classified")
    cache: CacheFields | None = None

    def rules(self) -> dict[str, Any]:
        """Return the stated fields as plain data."""
        said = self.model_dump(mode="json", exclude_defaults=True)
        return said | ({"cache": self.cache.stated()} if self.cache is not None else {})

    def spec(self, name: str, created_unix: int = 0) -> RouteSpec:
        """Return the route. Raises ConfigurationError if the fields are invalid."""
        return route_spec(name, self.rules(), created_unix)
