"""Adds booked entries to groups' recorded cost, and counts requests that got a price by them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from analytics.cost.sums import CostSum
from analytics.rows import number_of


@dataclass(frozen=True, slots=True)
class Correction:
    """Sum of one group's booked entries. Counts of unpriced requests are differences, below 0 if they got a price."""

    pico_usd: int
    unpriced_requests: int
    partly_unpriced_requests: int
    unpriced_input_tokens: int
    unpriced_output_tokens: int
    estimated_requests: int
    estimated_pico_usd: int

    @classmethod
    def from_row(cls, row: Mapping[str, object]) -> "Correction":
        """Return the sums from a row of cost_corrections.sql."""
        return cls(
            number_of(row["cost_pico_sum"]),
            number_of(row["unpriced_count"]),
            number_of(row["partly_unpriced_count"]),
            number_of(row["unpriced_input_sum"]),
            number_of(row["unpriced_output_sum"]),
            number_of(row["estimated_count"]),
            number_of(row["estimated_pico_sum"]),
        )

    def applied_to(self, sums: CostSum) -> CostSum:
        """Return a group's sums with the correction added."""
        return replace(
            sums,
            priced_pico_usd=sums.priced_pico_usd + self.pico_usd,
            corrected_pico_usd=sums.corrected_pico_usd + self.pico_usd,
            unpriced_requests=sums.unpriced_requests + self.unpriced_requests,
            partly_unpriced_requests=sums.partly_unpriced_requests + self.partly_unpriced_requests,
            unpriced_input_tokens=_sum(sums.unpriced_input_tokens, self.unpriced_input_tokens),
            unpriced_output_tokens=_sum(sums.unpriced_output_tokens, self.unpriced_output_tokens),
            estimated_requests=sums.estimated_requests + self.estimated_requests,
            estimated_pico_usd=sums.estimated_pico_usd + self.estimated_pico_usd,
        )


def _sum(known: int | None, more: int) -> int | None:
    return None if known is None else known + more
