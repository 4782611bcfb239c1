"""Sums over a group of requests. Requests with unknown amounts are counted separately, never as zero."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import add
from typing import Final, Self

from analytics.rows import whole_numbers
from contracts.metering.usage import UNIT_LEAVES
from contracts.pricing.money import usd
from contracts.pricing.unit_prices import unit_of

# Columns of the first fields of a sum, in order.
_COLUMNS: Final = (
    *("request_count", "rejected_count", "input_sum", "cached_input_sum", "output_sum", "cost_pico_sum"),
    *("charged_pico_sum", "unpriced_count"),
)
_MORE_COLUMNS: Final = (
    *("unknown_usage_count", "gpu_sum", "failed_count", "partly_unpriced_count", "estimated_count"),
    "estimated_pico_sum",
)
_NO_UNITS: Final = (0,) * len(UNIT_LEAVES)


@dataclass(frozen=True, slots=True)
class CostSum:
    """Requests, tokens, pico-USD and GPU nanoseconds of one group.

    `requests` counts all requests, `rejected` those that reached no model. Tokens and money are sums over requests with
    known usage and a price. Requests without an amount are `failed_requests` (free), `unknown_usage_requests` or
    `unpriced_requests` (no price card). In `partly_unpriced_requests` one kind of token has no price; the rest is in
    the sum. `unpriced_input_tokens` and `unpriced_output_tokens`: tokens without a price; `None` if rollups do not have
    them and the requests have expired. `estimated_pico_usd`: the part of the cost with estimated token counts, of
    `estimated_requests`. `charged_pico_usd`: charges to budgets.

    `further_attempts`: attempts beyond the first (retries, hedges); `further_pico_usd`: their cost, which is in no
    other sum; `further_unpriced`: those without a known cost. `units`: usage in other units than tokens, in the order
    of `UNIT_LEAVES`. Both are empty unless the report was read with attempts.

    `priced_pico_usd` includes booked corrections (`corrected_pico_usd`; below 0: credits), and so do the counts.
    """

    requests: int = 0
    rejected: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    priced_pico_usd: int = 0
    charged_pico_usd: int = 0
    unpriced_requests: int = 0
    unpriced_input_tokens: int | None = 0
    unpriced_output_tokens: int | None = 0
    unknown_usage_requests: int = 0
    gpu_ns: int = 0
    failed_requests: int = 0
    partly_unpriced_requests: int = 0
    estimated_requests: int = 0
    estimated_pico_usd: int = 0
    further_attempts: int = 0
    further_pico_usd: int = 0
    further_unpriced: int = 0
    corrected_pico_usd: int = 0
    units: tuple[int, ...] = _NO_UNITS

    @property
    def recorded_pico_usd(self) -> int:
        """Return the recorded cost before corrections, in pico-USD."""
        return self.priced_pico_usd - self.corrected_pico_usd

    @property
    def admitted(self) -> int:
        """Return the number of requests that were not refused."""
        return self.requests - self.rejected

    @property
    def priced_requests(self) -> int:
        """Return the number of requests with a price, complete or partial."""
        return self.admitted - self.failed_requests - self.unknown_usage_requests - self.unpriced_requests

    @property
    def unpriced_tokens(self) -> int | None:
        """Return the number of tokens without a price; `None` if unknown."""
        if self.unpriced_input_tokens is None or self.unpriced_output_tokens is None:
            return None
        return self.unpriced_input_tokens + self.unpriced_output_tokens

    @property
    def units_used(self) -> dict[str, Decimal]:
        """Return the usage of each unit other than tokens, by its name on price cards (`UNIT_WORDS`); without zeros."""
        by_word = zip(map(unit_of, UNIT_LEAVES), self.units, strict=True)
        return {word: Decimal(count) / each for (word, each), count in by_word if count}

    @property
    def cost_pico_usd(self) -> int | None:
        """Return the cost of priced requests; 0 if all failed; `None` if there is usage but none has a price."""
        has_unknown = self.unpriced_requests or self.unknown_usage_requests
        is_unknown = has_unknown and self.priced_requests <= 0 and not self.corrected_pico_usd
        return None if is_unknown else self.priced_pico_usd

    @property
    def cost_usd(self) -> Decimal | None:
        """Return the cost in USD with twelve decimal places; `None` as in `cost_pico_usd`."""
        cost = self.cost_pico_usd
        return None if cost is None else usd(cost)

    def __add__(self, other: "CostSum") -> "CostSum":
        """Return the sum with another group."""
        return CostSum(
            requests=self.requests + other.requests,
            rejected=self.rejected + other.rejected,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            priced_pico_usd=self.priced_pico_usd + other.priced_pico_usd,
            charged_pico_usd=self.charged_pico_usd + other.charged_pico_usd,
            unpriced_requests=self.unpriced_requests + other.unpriced_requests,
            unpriced_input_tokens=_both(self.unpriced_input_tokens, other.unpriced_input_tokens),
            unpriced_output_tokens=_both(self.unpriced_output_tokens, other.unpriced_output_tokens),
            unknown_usage_requests=self.unknown_usage_requests + other.unknown_usage_requests,
            gpu_ns=self.gpu_ns + other.gpu_ns,
            failed_requests=self.failed_requests + other.failed_requests,
            partly_unpriced_requests=self.partly_unpriced_requests + other.partly_unpriced_requests,
            estimated_requests=self.estimated_requests + other.estimated_requests,
            estimated_pico_usd=self.estimated_pico_usd + other.estimated_pico_usd,
            further_attempts=self.further_attempts + other.further_attempts,
            further_pico_usd=self.further_pico_usd + other.further_pico_usd,
            further_unpriced=self.further_unpriced + other.further_unpriced,
            corrected_pico_usd=self.corrected_pico_usd + other.corrected_pico_usd,
            units=tuple(map(add, self.units, other.units)),
        )

    @classmethod
    def from_columns(cls, columns: Mapping[str, Sequence[object]]) -> Iterator[Self]:
        """Yield sums from columns of cost_rollup.sql or cost_requests.sql; the usage of unpriced requests is unknown if
        `mixed_count` of them are in sums with priced ones. Columns are faster than rows; fields go by position.
        """
        sums = [whole_numbers(columns[name]) for name in _COLUMNS]
        known = [whole_numbers(columns[name]) for name in ("unpriced_input_sum", "unpriced_output_sum")]
        tokens: list[Iterable[int | None]] = [*known]
        if "mixed_count" in columns:
            mixed = whole_numbers(columns["mixed_count"])
            tokens = [[None if count else token for count, token in zip(mixed, each, strict=True)] for each in known]
        return map(cls, *sums, *tokens, *(whole_numbers(columns[name]) for name in _MORE_COLUMNS))


def _both(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def total_of(sums: Iterable[CostSum]) -> CostSum:
    """Return the sum of groups; zeros if there are none."""
    return sum(sums, CostSum())
