"""A guardrail policy: which requests it covers, and its ordered stages. A stage's settings are interpreted by its
detector (`gateway/guardrails/detectors`).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from contracts.errors import ConfigurationError
from contracts.guardrails.finding import Action, Side

Direction = Literal["input", "output", "both"]

MAX_POLICIES: Final = 1000
MAX_STAGES: Final = 64  # per policy
MAX_NAMES: Final = 1000  # tenants, or routes, per policy
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


class StageSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One stage: what it detects, on which side of the model, and its action.

    A dry-run stage inspects and is recorded, and changes nothing.
    """

    name: str
    detector: str
    direction: Direction = "input"
    action: Action = "block"
    dry_run: bool = False
    settings: dict[str, Any] = {}

    def __post_init__(self) -> None:
        """Raise ConfigurationError if the name is invalid."""
        if _NAME.fullmatch(self.name) is None:
            raise ConfigurationError(
                f"stage {self.name[:80]!r}: a name is 1 to 63 of a-z, 0-9, '.', '_' and '-', and begins with a letter "
                "or digit"
            )

    def is_on(self, side: Side) -> bool:
        """Return whether the stage inspects this side."""
        return self.direction in (side, "both")


class GuardrailPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Stages for the requests of some tenants to some names. Empty `tenants` or `routes`: all of them.

    `routes` are the names that applications ask for: of routes, or of models that are asked for directly.
    """

    name: str
    tenants: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    stages: tuple[StageSpec, ...] = ()

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a policy does nothing, or exceeds a limit."""
        about = f"guardrail {self.name[:80]!r}"
        if _NAME.fullmatch(self.name) is None:
            raise ConfigurationError(
                "a name is 1 to 63 of a-z, 0-9, '.', '_' and '-', and begins with a letter or digit", about=about
            )
        if not 1 <= len(self.stages) <= MAX_STAGES:
            raise ConfigurationError(f"it has {len(self.stages)} stages; use 1 to {MAX_STAGES}", about=about)
        names = [stage.name for stage in self.stages]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigurationError(f"it has two stages {twice!r}; verdicts could not be told apart", about=about)
        for what, given in (("tenants", self.tenants), ("routes", self.routes)):
            if len(given) > MAX_NAMES:
                raise ConfigurationError(f"it names {len(given)} {what}; the maximum is {MAX_NAMES}", about=about)
            if not all(given):
                raise ConfigurationError(f"one of {what} is empty; leave the list empty to mean all", about=about)

    def covers(self, tenant: str, name: str) -> bool:
        """Return whether the policy covers a tenant's requests for a name."""
        return (not self.tenants or tenant in self.tenants) and (not self.routes or name in self.routes)

    @property
    def breadth(self) -> int:
        """Return the policy's rank: policies that cover everything come first, the most specific last."""
        return 2 * bool(self.tenants) + bool(self.routes)


def covering(policies: Iterable[GuardrailPolicy], tenant: str, name: str) -> tuple[GuardrailPolicy, ...]:
    """Return the policies that cover a request, broadest first, equal ones in their given order."""
    return tuple(sorted((one for one in policies if one.covers(tenant, name)), key=lambda one: one.breadth))


def policy_of(name: str, rules: Mapping[str, object]) -> GuardrailPolicy:
    """Build a policy from plain data: `tenants`, `routes`, `stages`. Raises ConfigurationError, naming the field."""
    try:
        return msgspec.convert({**rules, "name": name}, GuardrailPolicy)
    except msgspec.ValidationError as error:
        raise ConfigurationError(str(error), about=f"guardrail {name[:80]!r}") from error
    except ConfigurationError as error:
        raise ConfigurationError(error.fault, about=f"guardrail {name[:80]!r}") from error
