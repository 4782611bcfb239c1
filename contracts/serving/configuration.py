"""A gateway's configuration: keys, models, pools, targets, prices, limits and budgets as an immutable snapshot.

It is read from the control-plane database or from a single YAML file; the data plane only uses this, and replaces it as
a whole when its revision has changed.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from contracts.access.identity import Identity
from contracts.api.chat import ReasoningEffort
from contracts.errors import ConfigurationError
from contracts.guardrails.policy import GuardrailPolicy
from contracts.mcp.servers import McpServerSpec, ToolRule
from contracts.pricing.prices import PriceBook
from contracts.rules.holds import HoldSpec
from contracts.rules.limits import BudgetSpec, LimitSpec, PriorityClass, QueueSpec, TenantSpec
from contracts.serving.caching import CachePolicy
from contracts.serving.failures import DEFAULT_FAILURES, FailurePolicy, Playbook
from contracts.serving.pool_choices import PLAIN_POLICY
from contracts.serving.rollouts import RolloutSpec
from contracts.serving.routes import RouteSpec
from contracts.serving.sampling import SamplingPolicy


def control_database_url(chosen: str, data: Path) -> str:
    """Return the control database's URL: the configured one, else SQLite's in the data directory."""
    return chosen or f"sqlite:///{(data / 'control.db').absolute()}"


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """Restrictions of a key beyond its models and endpoints. Keys with the same policy share one object.

    `addresses` are networks it may be used from ("10.0.0.0/8", "2001:db8::/32"), `None` meaning anywhere. `priority` is
    the highest class that it may ask for, and its default.
    """

    addresses: tuple[str, ...] | None = None
    priority: PriorityClass = "standard"
    max_reasoning_effort: ReasoningEffort | None = None
    max_thinking_tokens: int | None = None


DEFAULT_POLICY: Final = KeyPolicy()


class KeyEntry(msgspec.Struct, frozen=True, gc=False):
    """A key as the data plane knows it: by the digest of its secret, with its payer.

    `models` and `endpoints` are what it may use, `None` meaning all. Times are Unix nanoseconds. A rotated key has an
    entry for each valid secret. There may be 100,000 entries: they are compact, share equal parts, and are ignored by
    the garbage collector, because they cannot form cycles.
    """

    digest: bytes  # HMAC-SHA-256(pepper, key), 32 bytes
    identity: Identity
    expires_at_ns: int | None = None
    revoked_at_ns: int | None = None
    models: frozenset[str] | None = None
    endpoints: frozenset[str] | None = None
    policy: KeyPolicy = DEFAULT_POLICY
    since_ns: int = 0  # creation of the newest of its tenant, team and project; 0: unknown


@dataclass(frozen=True, slots=True)
class IssuerSpec:
    """An identity provider whose tokens (JWT) are accepted in place of keys.

    `keys_url` is where its signing keys are (JWKS); empty: found by OpenID discovery below `issuer`. The payer is read
    from claims: `tenant` is a fixed tenant, or else `tenant_claim` names the claim that contains it.
    """

    issuer: str  # the token's `iss`, exactly
    audience: str  # must be in the token's `aud`
    keys_url: str = ""
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    tenant: str = ""
    tenant_claim: str = ""
    team_claim: str = ""
    project_claim: str = ""
    user_claim: str = "sub"
    models: frozenset[str] | None = None
    endpoints: frozenset[str] | None = None
    policy: KeyPolicy = DEFAULT_POLICY

    def __post_init__(self) -> None:
        if bool(self.tenant) == bool(self.tenant_claim):
            raise ConfigurationError(f"issuer {self.issuer!r} needs either tenant or tenant_claim", param="tenant")
        if not self.audience:
            raise ConfigurationError(
                f"issuer {self.issuer!r} needs an audience: tokens for others must not be taken", param="audience"
            )
        if not self.algorithms or any(name.startswith(("HS", "none")) for name in self.algorithms):
            raise ConfigurationError(
                f"issuer {self.issuer!r}: algorithms must be asymmetric, such as RS256", param="algorithms"
            )


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One replica and its protocol; see `contracts.control.serving.Target`."""

    id: str
    pool: str
    kind: str  # a TargetKind
    url: str = ""
    model: str = ""  # upstream's name for it; empty: the name that the application used
    provider: str = ""
    key_ref: str = ""  # "env:NAME" or "file:PATH"
    weight: int = 1
    region: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    slow_start_seconds: float = 0.0  # in which its share of requests grows, if it joins a pool in use


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Interchangeable targets and the name of the policy that chooses among them. `kinds` are those of the targets."""

    id: str
    targets: tuple[TargetSpec, ...]
    policy: str = PLAIN_POLICY
    queue: QueueSpec | None = None
    failures: FailurePolicy = DEFAULT_FAILURES
    kinds: frozenset[str] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        if not self.targets:
            raise ConfigurationError(f"pool {self.id!r} has no targets; add one or remove the pool")
        object.__setattr__(self, "kinds", frozenset(target.kind for target in self.targets))


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A name applications ask for and the pool that serves it."""

    id: str
    pool: str
    context_tokens: int | None = None
    created_unix: int = 0
    sampling: SamplingPolicy | None = None
    cache: CachePolicy | None = None  # none: its answers are not cached

    def __post_init__(self) -> None:
        limit = None if self.sampling is None else self.sampling.output_limit
        if limit is not None and self.context_tokens is not None and limit > self.context_tokens:
            raise ConfigurationError(
                f"model {self.id!r}: max_tokens is {limit}, and its context holds {self.context_tokens} tokens"
            )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The complete configuration of the data plane, at one revision.

    `misconfigured` describes, for a log, what could not be read and is left out.
    """

    revision: int
    keys: Mapping[bytes, KeyEntry]
    models: Mapping[str, ModelSpec]
    pools: Mapping[str, PoolSpec]
    prices: PriceBook
    misconfigured: tuple[str, ...] = ()
    tenants: Mapping[str, TenantSpec] = field(default_factory=dict)
    limits: tuple[LimitSpec, ...] = ()
    budgets: tuple[BudgetSpec, ...] = ()
    issuers: tuple[IssuerSpec, ...] = ()
    routes: Mapping[str, RouteSpec] = field(default_factory=dict)
    playbooks: Mapping[str, Playbook] = field(default_factory=dict)  # by provider
    holds: tuple[HoldSpec, ...] = ()  # current holds of objectives at risk
    guardrails: tuple[GuardrailPolicy, ...] = ()
    rollouts: Mapping[str, RolloutSpec] = field(default_factory=dict)  # live ones, by route
    mcp_servers: Mapping[str, McpServerSpec] = field(default_factory=dict)
    mcp_rules: tuple[ToolRule, ...] = ()

    def __post_init__(self) -> None:
        for model in self.models.values():
            if model.pool not in self.pools:
                known = ", ".join(sorted(self.pools)) or "none"
                raise ConfigurationError(f"model {model.id!r} names pool {model.pool!r}; known pools: {known}")

    def names(self, allowed: Container[str] | None = None) -> dict[str, int]:
        """Return every name that applications may ask for, or the allowed ones, with their creation times (Unix
        seconds).
        """
        every: dict[str, ModelSpec | RouteSpec] = {**self.models, **self.routes}
        return {name: found.created_unix for name, found in every.items() if allowed is None or name in allowed}

    def serves(self, name: str, allowed: Container[str] | None = None) -> bool:
        """Return whether a name is a model or a route, and is allowed."""
        return (name in self.models or name in self.routes) and (allowed is None or name in allowed)


EMPTY_SNAPSHOT: Final = Snapshot(revision=-1, keys={}, models={}, pools={}, prices=PriceBook())
