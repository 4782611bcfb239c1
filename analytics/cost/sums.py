"""What a group of requests came to. Sums over what was reported; how much was not stands beside them, never as zero."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Self

from analytics.rows import whole_numbers
from contracts.money import usd

# The first fields of a sum, in their order, as the columns that they are read from.
_COLUMNS: Final = (
    *("request_count", "rejected_count", "input_sum", "cached_input_sum", "output_sum", "cost_pico_sum"),
    *("charged_pico_sum", "unpriced_count"),
)
_MORE_COLUMNS: Final = ("unknown_usage_count", "gpu_sum")


@dataclass(frozen=True, slots=True)
class CostSum:
    """Requests, tokens, pico-USD and GPU nanoseconds of one group.

    `requests` counts all, `rejected` of them those that no model saw. Tokens and money are sums over the requests that
    reported them and were priced. `unpriced_requests` reached a model and have no price, `unpriced_tokens` is what
    they used, `None` where sums do not tell and the requests are no longer kept; `unknown_usage_requests` reported no
    tokens.
    `charged_pico_usd` is what budgets were charged.

    `further_attempts` are tries beyond one a request (retries, hedges), `further_pico_usd` what they cost, which is in
    no other sum; `further_unpriced` of them have no known cost. They say nothing in a report not asked for them.
    """

    requests: int = 0
    rejected: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    priced_pico_usd: int = 0
    charged_pico_usd: int = 0
    unpriced_requests: int = 0
    unpriced_tokens: int | None = 0
    unknown_usage_requests: int = 0
    gpu_ns: int = 0
    further_attempts: int = 0
    further_pico_usd: int = 0
    further_unpriced: int = 0

    @property
    def admitted(self) -> int:
        """Count the requests that were not refused."""
        return self.requests - self.rejected

    @property
    def cost_pico_usd(self) -> int | None:
        """Give what the priced requests cost; `None` where requests reached a model and not one has a price."""
        return None if 0 < self.admitted <= self.unpriced_requests else self.priced_pico_usd

    @property
    def cost_usd(self) -> Decimal | None:
        """Give the cost in USD with twelve decimal places; `None` as in `cost_pico_usd`."""
        cost = self.cost_pico_usd
        return None if cost is None else usd(cost)

    def __add__(self, other: "CostSum") -> "CostSum":
        """Add another group's sums."""
        unpriced_tokens = (
            None
            if self.unpriced_tokens is None or other.unpriced_tokens is None
            else self.unpriced_tokens + other.unpriced_tokens
        )
        return CostSum(
            requests=self.requests + other.requests,
            rejected=self.rejected + other.rejected,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            priced_pico_usd=self.priced_pico_usd + other.priced_pico_usd,
            charged_pico_usd=self.charged_pico_usd + other.charged_pico_usd,
            unpriced_requests=self.unpriced_requests + other.unpriced_requests,
            unpriced_tokens=unpriced_tokens,
            unknown_usage_requests=self.unknown_usage_requests + other.unknown_usage_requests,
            gpu_ns=self.gpu_ns + other.gpu_ns,
            further_attempts=self.further_attempts + other.further_attempts,
            further_pico_usd=self.further_pico_usd + other.further_pico_usd,
            further_unpriced=self.further_unpriced + other.further_unpriced,
        )

    @classmethod
    def from_columns(cls, columns: Mapping[str, Sequence[object]]) -> Iterator[Self]:
        """Read the rows of cost_rollup.sql or cost_requests.sql; what unpriced requests used is unknown where
        `mixed_count` of them lie in sums with priced ones. A report has thousands, so they come as columns, and fields
        are told by their place."""
        sums = [whole_numbers(columns[name]) for name in _COLUMNS]
        known = whole_numbers(columns["unpriced_token_sum"])
        tokens: Iterable[int | None] = (token if count else 0 for count, token in zip(sums[-1], known, strict=True))
        if "mixed_count" in columns:
            mixed = whole_numbers(columns["mixed_count"])
            tokens = (None if count else token for count, token in zip(mixed, known, strict=True))
        return map(cls, *sums, tokens, *(whole_numbers(columns[name]) for name in _MORE_COLUMNS))


def total_of(sums: Iterable[CostSum]) -> CostSum:
    """Add groups up; of none, nothing."""
    return sum(sums, CostSum())
