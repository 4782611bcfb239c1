"""Compares costs that providers state in responses with the recorded costs of the same requests."""

from dataclasses import dataclass
from decimal import Decimal

from analytics.queries import query
from analytics.rows import money_of, number_of, text_of
from analytics.scope import Period
from backends.store.client import StoreClient


@dataclass(frozen=True, slots=True)
class StatedCost:
    """One model of one target. `unstated` counts answers without a stated cost, which are in neither sum."""

    provider: str
    target: str
    model: str
    requests: int
    unstated: int
    stated_usd: Decimal
    recorded_usd: Decimal

    @property
    def difference_usd(self) -> Decimal:
        """Return stated minus recorded cost."""
        return self.stated_usd - self.recorded_usd


def stated_costs(store: StoreClient, period: Period, tenant: str | None = None) -> list[StatedCost]:
    """Read the targets and models whose answers stated costs in a range. Raises StoreUnavailable."""
    parameters = {"start": period.start_s, "end": period.end_s, "tenant": tenant}
    return [
        StatedCost(
            text_of(row["provider_label"]),
            text_of(row["target_label"]),
            text_of(row["model_label"]),
            number_of(row["stated_count"]),
            number_of(row["unstated_count"]),
            money_of(row["stated_sum"]),
            money_of(row["recorded_sum"]),
        )
        for row in store.query(query("stated_costs"), parameters)
    ]
