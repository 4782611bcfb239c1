"""Holds of an objective in danger: read and enforced by gateways."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from contracts.errors import ConfigurationError
from contracts.rules.objectives import HOOKS, Hook

RETRY_SECONDS: Final = 30.0  # after which a caller may look again: rules are looked at every 15 s
CANARY: Final = "canary"


@dataclass(frozen=True, slots=True)
class HoldSpec:
    """One hold. Empty `tenant`, `model` and `route` mean all; from `until_ns` (Unix) on it holds nobody.

    Raises ConfigurationError on a hook that nothing acts on.
    """

    slo: str
    hook: Hook
    tenant: str = ""
    model: str = ""
    route: str = ""
    until_ns: int = field(kw_only=True)

    def __post_init__(self) -> None:
        if self.hook not in HOOKS:
            raise ConfigurationError(f"objective {self.slo!r} holds {self.hook!r}; known: {', '.join(HOOKS)}")

    def covers(self, who: "HeldFor", now_ns: int) -> bool:
        """Return whether such requests are held at a moment (Unix ns)."""
        return (
            now_ns < self.until_ns
            and self.tenant in ("", who.tenant)
            and self.route in ("", who.route)
            and (not self.model or self.model in who.models)
        )


@dataclass(frozen=True, slots=True)
class HeldFor:
    """Requests that a hold may cover: of a tenant, for what was asked (a route or a model), led to one of `models`."""

    tenant: str
    route: str
    models: tuple[str, ...]


def hold_on(holds: Iterable[HoldSpec], hook: Hook, who: HeldFor, now_ns: int) -> HoldSpec | None:
    """Return the hold of that kind which covers such requests at a moment (Unix ns), if any."""
    return next((hold for hold in holds if hold.hook == hook and hold.covers(who, now_ns)), None)


def is_canary(label: str) -> bool:
    """Return whether an entry of a route is a canary, by its label: "canary", or "canary-" and more."""
    return label == CANARY or label.startswith(f"{CANARY}-")
