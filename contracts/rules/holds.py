"""Holds of an objective at risk: read and enforced by gateways."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from contracts.errors import ConfigurationError
from contracts.rules.objectives import HOOKS, Hook

RETRY_SECONDS: Final = 30.0  # after which a caller may retry: rules are evaluated every 15 s
CANARY: Final = "canary"


@dataclass(frozen=True, slots=True)
class HoldSpec:
    """One hold. Empty `tenant`, `model` and `route` mean all; it has no effect from `until_ns` (Unix) on.

    Raises ConfigurationError on an unknown hook.
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
        """Return whether such requests are held at a time (Unix ns)."""
        return (
            now_ns < self.until_ns
            and self.tenant in ("", who.tenant)
            and self.route in ("", who.route)
            and (not self.model or self.model in who.models)
        )


@dataclass(frozen=True, slots=True)
class HeldFor:
    """Requests that a hold may cover: of a tenant, for a requested route or model, sent to one of `models`."""

    tenant: str
    route: str
    models: tuple[str, ...]


def hold_on(holds: Iterable[HoldSpec], hook: Hook, who: HeldFor, now_ns: int) -> HoldSpec | None:
    """Return the hold of that kind that covers such requests at a time (Unix ns), if any."""
    return next((hold for hold in holds if hold.hook == hook and hold.covers(who, now_ns)), None)


def is_canary(label: str) -> bool:
    """Return whether an entry of a route is a canary, by its label: "canary", or one that starts with "canary-"."""
    return label == CANARY or label.startswith(f"{CANARY}-")
