"""A recommendation: action, saving, and evidence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from contracts.pricing.money import usd

Kind = Literal["right_size", "cacheable_prefix", "batch", "idle_replicas", "cheaper_provider"]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A recommendation. `saving_pico_usd` is for the examined time; `None`: unknown, as a price is missing.

    `tenant` is empty if it concerns replicas, which serve all tenants. `caution` is what to check first.
    """

    kind: Kind
    tenant: str
    model: str
    action: str
    saving_pico_usd: int | None
    evidence: Mapping[str, int | float | str]
    caution: str = ""

    @property
    def saving_usd(self) -> Decimal | None:
        """Return the saving in USD, exact."""
        return None if self.saving_pico_usd is None else usd(self.saving_pico_usd)

    def as_json(self) -> dict[str, object]:
        """Return the JSON values that commands print; money is text."""
        return {
            "kind": self.kind,
            "tenant": self.tenant,
            "model": self.model,
            "action": self.action,
            "saving_usd": None if self.saving_usd is None else format(self.saving_usd, "f"),
            "evidence": dict(self.evidence),
            "caution": self.caution,
        }


def ranked(found: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
    """Return recommendations by saving, largest first; those of unknown saving are last, in the given order."""
    return tuple(
        sorted(
            found,
            key=lambda one: (one.saving_pico_usd is None, -(one.saving_pico_usd or 0), one.kind, one.tenant, one.model),
        )
    )
