"""Entries of the YAML file, the same for a file gateway and for `tollkeeper apply`."""

from datetime import datetime
from decimal import Decimal
from ipaddress import ip_network
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from contracts.access.endpoints import Endpoint
from contracts.api.chat import ReasoningEffort
from contracts.errors import ConfigurationError
from contracts.mcp.servers import DEFAULT_CONCURRENT, DEFAULT_RESULT_BYTES, DEFAULT_TIMEOUT_SECONDS
from contracts.metering.usage import Leaf
from contracts.pricing.unit_prices import check_units
from contracts.rules.limits import BudgetLevel, Level, Period, PriorityClass, WhenAway, WhenUnpriced, Window
from contracts.rules.metrics import MetricWord
from contracts.rules.periods import zone_of
from contracts.serving.configuration import KeyPolicy
from contracts.serving.pool_choices import PolicyName
from contracts.serving.rollouts import MAX_STEPS, PLATFORM_TENANT
from gateway.config.fields.cache_fields import CacheFields
from gateway.config.fields.failure_fields import FailureFields, PlaybookFields
from gateway.config.fields.queue_fields import QueueFields
from gateway.config.fields.rollout_fields import GuardFields, Percent, ShadowFields, StepFields, Words
from gateway.config.fields.route_fields import RouteFields
from gateway.config.fields.rule_fields import (
    Amount,
    BudgetUsd,
    Currency,
    GpuMilliseconds,
    LimitUsd,
    Subject,
    Thresholds,
    WebhookUrl,
)
from gateway.config.fields.sampling_fields import SamplingFields

CONTROL_SECTIONS: Final = (*("teams", "projects", "rates", "standard_costs", "slos", "alert_channels", "alert_rules"),)
_ALWAYS: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _network(text: str) -> str:
    try:
        return str(ip_network(text.strip()))
    except ValueError as error:
        raise ValueError(
            "not a network; write 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32, with no bits set behind the prefix"
        ) from error


def _time_zone(name: str) -> str:
    try:
        zone_of(name)
    except ConfigurationError as error:
        raise ValueError(error.message) from error
    return name


def _payer(tenant: str) -> str:
    if tenant == PLATFORM_TENANT:
        raise ValueError("shadows of rollouts are recorded under this name and billed to nobody")
    return tenant


_Name = Annotated[str, Field(min_length=1)]
_Payer = Annotated[str, AfterValidator(_payer)]
_RuleId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@*=+-]*$", max_length=200)]
_Network = Annotated[str, AfterValidator(_network)]
_TimeZone = Annotated[str, AfterValidator(_time_zone)]


class Entry(BaseModel):
    """A part of the file. An unknown field is refused, because it is probably misspelt."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AccessEntry(Entry):
    """What a key, or an issuer's token, may do; omitted fields restrict nothing."""

    models: list[str] | None = None
    endpoints: Annotated[list[Endpoint], Field(min_length=1)] | None = None
    addresses: Annotated[list[_Network], Field(min_length=1)] | None = None
    priority: PriorityClass = "standard"
    max_reasoning_effort: ReasoningEffort | None = None
    max_thinking_tokens: int | None = Field(default=None, ge=0, le=1_000_000_000)

    def policy(self) -> KeyPolicy:
        """Return the restrictions beyond models and endpoints."""
        return KeyPolicy(
            addresses=None if self.addresses is None else tuple(sorted(set(self.addresses))),
            priority=self.priority,
            max_reasoning_effort=self.max_reasoning_effort,
            max_thinking_tokens=self.max_thinking_tokens,
        )


class ConfiguredKey(AccessEntry):
    """A key and its payer. The control plane creates a secret if `key` is omitted; a file gateway requires it."""

    key: str = Field(default="", description="env:NAME or file:PATH; a file gateway also takes the key itself")
    id: str = ""
    name: str = Field(default="", max_length=200, description="Display name; identifies a key without an id")
    tenant: Annotated[_Payer, Field(min_length=1)]
    team: str = ""
    project: str = ""
    expires_at: AwareDatetime | None = None
    is_service_account: bool = False


class ConfiguredIssuer(AccessEntry):
    """An identity provider whose tokens are accepted in place of keys; see
    `contracts.serving.configuration.IssuerSpec`.
    """

    id: str = Field(default="", description="Its id in the control plane; left out: made from the issuer's host")
    issuer: _Name
    audience: _Name
    keys_url: str = ""
    algorithms: list[str] = ["RS256", "ES256"]
    tenant: _Payer = ""
    tenant_claim: str = ""
    team_claim: str = ""
    project_claim: str = ""
    user_claim: str = "sub"


class ConfiguredTenant(Entry):
    """A tenant's share under contention and its calendar. Tenants not listed have the defaults."""

    id: Annotated[_Payer, Field(min_length=1)]
    name: str = Field(default="", max_length=200, description="Display name (default: the id)")
    is_active: bool = Field(default=True, description="false refuses all its keys")
    weight: int = Field(default=1, ge=1, le=1000)
    time_zone: _TimeZone = "UTC"
    keeps_content: bool = False  # what its requests say, redacted
    audits_requests: bool = False  # each in the audit log


class ConfiguredLimit(Entry):
    """A limit, as the control plane accepts it. Without an id it is identified by what it counts."""

    id: _RuleId | None = None
    tenant: _Name
    level: Level = "tenant"
    subject: Subject = ""
    model: str = ""
    metric: MetricWord
    window: Window | None = None
    amount: Amount | None = None
    amount_usd: LimitUsd | None = None
    currency: Currency = "USD"
    when_away: WhenAway = "share"
    when_unpriced: WhenUnpriced = "refuse"


class ConfiguredBudget(Entry):
    """A budget, as the control plane accepts it. Without an id it is identified by what it counts."""

    id: _RuleId | None = None
    tenant: _Name
    level: BudgetLevel = "tenant"
    subject: Subject = ""
    model: str = ""
    period: Period
    amount_usd: BudgetUsd | None = None
    gpu_milliseconds: GpuMilliseconds | None = None
    currency: Currency = "USD"
    is_hard: bool = True
    thresholds: Thresholds = []
    channels: list[_Name] = Field(default=[], max_length=20, description="Alert channels; only with a control plane")
    starts_at: AwareDatetime | None = None
    ends_at: AwareDatetime | None = None
    webhook_url: WebhookUrl = ""
    when_away: WhenAway = "refuse"
    when_unpriced: WhenUnpriced = "refuse"


class ConfiguredTarget(Entry):
    """A replica of a pool."""

    name: _Name
    kind: str
    url: str = ""
    model: str = ""
    provider: str = ""
    key: str = ""
    weight: int = Field(default=1, ge=1)
    region: str = ""
    settings: dict[str, Any] = {}


class ConfiguredPool(Entry):
    """Interchangeable targets, and how requests wait in front of them."""

    name: _Name
    policy: PolicyName = "cost"
    region: str = Field(default="", description="Region of its targets without their own")
    targets: list[ConfiguredTarget] = Field(min_length=1)
    queue: QueueFields | None = None
    failures: FailureFields | None = None


class ConfiguredModel(Entry):
    """A name that applications ask for."""

    name: _Name
    pool: str
    description: str = Field(default="", max_length=500)
    is_active: bool = Field(default=True, description="false withdraws it from applications")
    context_tokens: int | None = Field(default=None, ge=1)
    defaults: SamplingFields = SamplingFields()  # where the caller says nothing
    pinned: SamplingFields = SamplingFields()  # whatever the caller says
    cache: CacheFields | None = None  # which of its answers are kept to be given again


class ConfiguredRoute(RouteFields):
    """A name that applications ask for, and that leads to models."""

    name: _Name
    is_active: bool = Field(default=True, description="false withdraws it from applications")

    def rules(self) -> dict[str, Any]:
        """Return its rules as plain data, without its name and active state."""
        return {field: value for field, value in super().rules().items() if field not in ("name", "is_active")}


class ConfiguredRollout(Entry):
    """A candidate that takes a share of a route from its incumbent: a fixed percent, or steps (control plane only)."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")]
    route: _Name
    incumbent: _Name
    candidate: _Name
    percent: Percent | None = None  # neither percent nor steps: a shadow alone
    steps: Annotated[list[StepFields], Field(max_length=MAX_STEPS)] | None = Field(
        default=None, description="Rising shares, in place of percent"
    )
    promotes: bool = Field(default=False, description="Replace the incumbent on the route after the last step")
    guards: GuardFields = GuardFields()
    shadow: ShadowFields | None = None
    tenants: Words = []
    not_tenants: Words = []

    def rules(self) -> dict[str, Any]:
        """Return its rules as plain data."""
        steps: list[dict[str, Any]] = [] if self.percent is None else [{"percent": self.percent}]
        if self.steps is not None:
            steps = [step.model_dump(mode="json") for step in self.steps]
        parts = self.model_dump(mode="json", include={"guards", "shadow", "tenants", "not_tenants", "promotes"})
        return {"steps": steps, **parts}


class ConfiguredGuardrail(Entry):
    """A guardrail policy, in the words of `contracts.guardrails.policy`."""

    name: _Name
    tenants: list[_Name] = []
    routes: list[_Name] = []
    stages: list[dict[str, Any]] = Field(min_length=1)


class ConfiguredTier(Entry):
    """Prices of the whole request if its input exceeds a number of tokens."""

    above_input_tokens: int = Field(ge=0, le=1_000_000_000)
    usd_per_mtok: dict[Leaf, Decimal]
    batch_usd_per_mtok: dict[Leaf, Decimal] = {}
    service_tiers: dict[str, dict[Leaf, Decimal]] = {}


class ConfiguredToolTerms(Entry):
    """Settings for the tools of an MCP server whose names match."""

    match: str
    price_usd: Decimal | None = Field(default=None, ge=0)
    timeout_seconds: float | None = None
    max_result_bytes: int | None = None


class ConfiguredMcpOAuth(Entry):
    """How access tokens for an MCP server are obtained; see `contracts.mcp.oauth.OAuthSpec`."""

    client_id: str
    client_secret: str = ""
    refresh_token: str = ""
    scope: str = ""
    issuer: str = ""
    token_url: str = ""
    resource: str = ""


class ConfiguredMcpServer(Entry):
    """An MCP server; see `contracts.mcp.servers.McpServerSpec`."""

    name: _Name
    url: str = ""
    key: str = ""
    headers: dict[str, str] = {}
    tls: dict[str, str] = {}
    oauth: ConfiguredMcpOAuth | None = None
    default: Literal["allow", "deny"] = "allow"
    price_usd: Decimal | None = Field(default=None, ge=0)
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    max_result_bytes: int = DEFAULT_RESULT_BYTES
    max_concurrent: int = DEFAULT_CONCURRENT
    tools: list[ConfiguredToolTerms] = []
    pins: dict[str, str] = {}

    def rules(self) -> dict[str, Any]:
        """Return its rules as plain data."""
        return self.model_dump(mode="json", exclude={"name"})


class ConfiguredToolRule(Entry):
    """Who may use which tools; see `contracts.mcp.servers.ToolRule`."""

    name: _Name
    effect: Literal["allow", "deny"]
    tools: list[str] = Field(min_length=1)
    tenant: str = ""
    team: str = ""
    project: str = ""
    key: str = ""

    def rules(self) -> dict[str, Any]:
        """Return its rules as plain data."""
        return self.model_dump(mode="json", exclude={"name"})


class ConfiguredPrice(Entry):
    """A price card. It is never edited: new prices need a new version that `replaces` this one."""

    model: str
    version: str
    usd_per_mtok: dict[Leaf, Decimal] = {}
    tiers: list[ConfiguredTier] = Field(default=[], max_length=20)
    usd_per_request: Decimal = Field(default=Decimal(0), ge=0, le=1000)
    replaces: str = Field(default="", description="Version of the card that ends when this one starts")
    batch_usd_per_mtok: dict[Leaf, Decimal] = {}  # for what a batch asks; a leaf left out keeps its price
    service_tiers: dict[str, dict[Leaf, Decimal]] = {}  # by name, such as "flex"; as above
    usd_per_unit: dict[str, Decimal] = {}  # by `UNIT_WORDS`, or "image.KIND"
    provider: str = ""
    region: str = Field(default="", description="Only for targets in this region")
    tenant: str = ""
    valid_from: AwareDatetime = _ALWAYS
    valid_to: AwareDatetime | None = None

    @model_validator(mode="after")
    def _check_units(self) -> Self:
        if not self.model_fields_set & {"usd_per_mtok", "usd_per_unit"}:
            raise ValueError("the card has no price; give usd_per_mtok or usd_per_unit")
        check_units(self.usd_per_mtok, self.service_tiers, self.usd_per_unit)
        return self


class ConfigurationFile(Entry):
    """The whole file."""

    keys: list[ConfiguredKey] = []
    pools: list[ConfiguredPool] = []
    models: list[ConfiguredModel] = []
    prices: list[ConfiguredPrice] = []
    tenants: list[ConfiguredTenant] = []
    limits: list[ConfiguredLimit] = []
    budgets: list[ConfiguredBudget] = []
    issuers: list[ConfiguredIssuer] = []
    routes: list[ConfiguredRoute] = []
    playbooks: list[PlaybookFields] = []
    rollouts: list[ConfiguredRollout] = []
    guardrails: list[ConfiguredGuardrail] = []
    mcp_servers: list[ConfiguredMcpServer] = []
    tool_rules: list[ConfiguredToolRule] = []
    # Read by `tollkeeper apply` alone: a gateway without a control plane has nothing to do with them.
    teams: list[dict[str, Any]] = []
    projects: list[dict[str, Any]] = []
    rates: list[dict[str, Any]] = []
    standard_costs: list[dict[str, Any]] = []
    slos: list[dict[str, Any]] = []
    alert_channels: list[dict[str, Any]] = []
    alert_rules: list[dict[str, Any]] = []

    def only_for_control(self) -> list[str]:
        """Return the sections that are filled and have no effect without a control plane."""
        return [name for name in CONTROL_SECTIONS if getattr(self, name)]
