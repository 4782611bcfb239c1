"""What a gateway serves by: keys, models, pools, targets and prices as one immutable snapshot.

It is read from the control-plane database or from a single YAML file; the data plane only ever sees this, and
swaps the whole of it at once when its revision has moved.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contracts.errors import ConfigurationError
from contracts.identity import Identity
from contracts.prices import PriceBook


def control_database_url(chosen: str, data: Path) -> str:
    """Give the control database's URL: the one chosen, else SQLite's in the data directory."""
    return chosen or f"sqlite:///{(data / 'control.db').absolute()}"


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A key as the data plane knows it: by the digest of its secret, with the payer it stands for.

    `models` and `endpoints` are what it may use, `None` meaning all. Times are Unix nanoseconds.
    """

    digest: bytes  # HMAC-SHA-256(pepper, key), 32 bytes
    identity: Identity
    expires_at_ns: int | None = None
    revoked_at_ns: int | None = None
    models: frozenset[str] | None = None
    endpoints: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One replica and how it is spoken to; see `contracts.control.serving.Target`."""

    id: str
    pool: str
    kind: str  # "scripted", "openai_http", "engine"
    url: str = ""
    model: str = ""  # upstream's name for it; empty: the name the application used
    provider: str = ""
    key_ref: str = ""  # "env:NAME" or "file:PATH"
    weight: int = 1
    region: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Interchangeable targets and the name of the policy that chooses among them."""

    id: str
    targets: tuple[TargetSpec, ...]
    policy: str = "round_robin"

    def __post_init__(self) -> None:
        if not self.targets:
            raise ConfigurationError(f"pool {self.id!r} has no targets; add one or remove the pool")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A name applications ask for and the pool that serves it."""

    id: str
    pool: str
    context_tokens: int | None = None
    created_unix: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the data plane decides by, at one revision.

    `misconfigured` says, in words for a log, what of it could not be read and is left out.
    """

    revision: int
    keys: Mapping[bytes, KeyEntry]
    models: Mapping[str, ModelSpec]
    pools: Mapping[str, PoolSpec]
    prices: PriceBook
    misconfigured: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for model in self.models.values():
            if model.pool not in self.pools:
                known = ", ".join(sorted(self.pools)) or "none"
                raise ConfigurationError(f"model {model.id!r} names pool {model.pool!r}; known pools: {known}")


EMPTY_SNAPSHOT: Final = Snapshot(revision=-1, keys={}, models={}, pools={}, prices=PriceBook())
