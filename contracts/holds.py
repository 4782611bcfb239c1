"""What an objective in danger holds back, and from whom: read by gateways, which act on it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from contracts.errors import ConfigurationError
from contracts.objectives import HOOKS, Hook

RETRY_SECONDS: Final = 30.0  # after which a caller may look again: rules are looked at every 15 s
CANARY: Final = "canary"


@dataclass(frozen=True, slots=True)
class HoldSpec:
    """One hold. Empty `tenant` and `model` mean all. Raises ConfigurationError on a hook that nothing acts on."""

    slo: str
    hook: Hook
    tenant: str = ""
    model: str = ""

    def __post_init__(self) -> None:
        if self.hook not in HOOKS:
            raise ConfigurationError(f"objective {self.slo!r} holds {self.hook!r}; known: {', '.join(HOOKS)}")

    def covers(self, tenant: str, model: str) -> bool:
        """Say whether a tenant's requests to a model are held."""
        return self.tenant in ("", tenant) and self.model in ("", model)


def hold_on(holds: Iterable[HoldSpec], hook: Hook, tenant: str, model: str) -> HoldSpec | None:
    """Give the hold of that kind which covers a tenant's requests to a model, if any."""
    return next((hold for hold in holds if hold.hook == hook and hold.covers(tenant, model)), None)


def is_canary(label: str) -> bool:
    """Say whether an entry of a route is a canary, by its label: "canary", or "canary-" and more."""
    return label == CANARY or label.startswith(f"{CANARY}-")
