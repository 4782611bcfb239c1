"""Sums over a group of requests. Unreported amounts are counted separately, never as zero."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import add
from typing import Final, Self

from analytics.rows import whole_numbers
from contracts.metering.usage import UNIT_LEAVES
from contracts.pricing.money import usd
from contracts.pricing.unit_prices import unit_of

# The first fields of a sum, in their order, as the columns that they are read from.
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

    `requests` counts all, `rejected` of them those that no model saw. Tokens and money are sums over the requests that
    reported them and were priced. What has no amount is one of three: `failed_requests` cost nothing,
    `unknown_usage_requests` used what nobody knows, `unpriced_requests` used what no price card prices. Of
    `partly_unpriced_requests` one kind of token has no price, the rest is in the sum.
    `unpriced_input_tokens` and `unpriced_output_tokens` are those that no amount stands for, `None` if sums do not
    tell and the requests are no longer kept. `estimated_pico_usd` is the part of the cost whose tokens were counted by
    estimate, of `estimated_requests`. `charged_pico_usd` is what budgets were charged.

    `further_attempts` are tries beyond one a request (retries, hedges), `further_pico_usd` what they cost, which is in
    no other sum; `further_unpriced` of them have no known cost. `units` counts what is sold by other units than tokens,
    in the order of `UNIT_LEAVES`. Both say nothing in a report not asked for what single requests tell.

    `priced_pico_usd` is net of booked corrections, which are `corrected_pico_usd` of it (below 0: credits); counts are
    as they are after these.
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
        """Return what the requests were recorded to cost, before corrections."""
        return self.priced_pico_usd - self.corrected_pico_usd

    @property
    def admitted(self) -> int:
        """Return the number of requests that were not refused."""
        return self.requests - self.rejected

    @property
    def priced_requests(self) -> int:
        """Return the number of requests that have an amount, whole or in part."""
        return self.admitted - self.failed_requests - self.unknown_usage_requests - self.unpriced_requests

    @property
    def unpriced_tokens(self) -> int | None:
        """Return the tokens that no amount stands for; `None` if not known."""
        if self.unpriced_input_tokens is None or self.unpriced_output_tokens is None:
            return None
        return self.unpriced_input_tokens + self.unpriced_output_tokens

    @property
    def units_used(self) -> dict[str, Decimal]:
        """Return what was used of each unit other than tokens, by its word on price cards (`UNIT_WORDS`). What was
        not used is not in it.
        """
        by_word = zip(map(unit_of, UNIT_LEAVES), self.units, strict=True)
        return {word: Decimal(count) / each for (word, each), count in by_word if count}

    @property
    def cost_pico_usd(self) -> int | None:
        """Return the cost of the priced requests, 0 if all failed; `None` if some used something and none is priced."""
        has_unknown = self.unpriced_requests or self.unknown_usage_requests
        is_unknown = has_unknown and self.priced_requests <= 0 and not self.corrected_pico_usd
        return None if is_unknown else self.priced_pico_usd

    @property
    def cost_usd(self) -> Decimal | None:
        """Return the cost in USD with twelve decimal places; `None` as in `cost_pico_usd`."""
        cost = self.cost_pico_usd
        return None if cost is None else usd(cost)

    def __add__(self, other: "CostSum") -> "CostSum":
        """Add another group's sums."""
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
        """Read the rows of cost_rollup.sql or cost_requests.sql; what unpriced requests used is unknown where
        `mixed_count` of them lie in sums with priced ones. A report has thousands, so they come as columns, and fields
        are told by their place."""
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
    """Add groups up; of none, nothing."""
    return sum(sums, CostSum())
