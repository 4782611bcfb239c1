"""Cost of additional attempts (retries, hedges, answers that a cascade discarded): paid to providers, by no tenant.

A request pays for the answer it got. All its tries together, less that, is what is told here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from analytics.rows import money_of, number_of
from contracts.pricing.money import pico_usd


@dataclass(frozen=True, slots=True)
class FurtherAttempts:
    """Of one group: how many tries there were beyond one a request, what they cost, and how many have no known cost.

    Those without are targets that did not say what they had used, or that were never reached.
    """

    count: int
    pico_usd: int
    unpriced: int

    @classmethod
    def from_row(cls, row: Mapping[str, object]) -> "FurtherAttempts":
        """Read a row of cost_attempts.sql."""
        return cls(
            number_of(row["more_count"]),
            pico_usd(money_of(row["more_cost_sum"])),
            number_of(row["unpriced_more_count"]),
        )
