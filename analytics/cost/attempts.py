"""Cost of additional attempts (retries, hedges, answers that a cascade discarded). No tenant is charged for it.

A request is charged for the answer it got. This is the cost of all its attempts minus that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from analytics.rows import money_of, number_of
from contracts.pricing.money import pico_usd


@dataclass(frozen=True, slots=True)
class FurtherAttempts:
    """One group's additional attempts: number, cost, and number without a known cost.

    The cost is unknown if a target reported no usage or was not reached.
    """

    count: int
    pico_usd: int
    unpriced: int

    @classmethod
    def from_row(cls, row: Mapping[str, object]) -> "FurtherAttempts":
        """Return the sums from a row of cost_attempts.sql."""
        return cls(
            number_of(row["more_count"]),
            pico_usd(money_of(row["more_cost_sum"])),
            number_of(row["unpriced_more_count"]),
        )
