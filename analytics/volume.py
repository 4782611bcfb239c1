"""Requests, tokens and cost of one group. Unreported or unpriced amounts do not count as zero."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Self

from analytics.rows import money_of, number_of


@dataclass(frozen=True, slots=True)
class Volume:
    """Requests, usage and cost.

    `requests` counts all recorded requests: answered, failed (`errors`), refused (`rejected`) and cancelled by the
    client (`cancelled`). Tokens and `cost_usd` are sums over the requests that reported them; `None` if requests were
    admitted and none reported. `unpriced_requests` and `unknown_usage_requests` count the admitted requests without an
    amount; `failed_requests` failed and cost nothing. `copies` and `copy_errors` count the admitted and failed requests
    that were copies to a rollout's candidate, whose answers no client received.
    """

    requests: int = 0
    errors: int = 0
    rejected: int = 0
    cancelled: int = 0
    streamed: int = 0
    input_tokens: int | None = 0
    cached_input_tokens: int | None = 0
    output_tokens: int | None = 0
    cost_usd: Decimal | None = Decimal(0)
    unpriced_requests: int = 0
    unknown_usage_requests: int = 0
    failed_requests: int = 0
    copies: int = 0
    copy_errors: int = 0

    @property
    def admitted(self) -> int:
        """Return the number of requests that were not refused."""
        return self.requests - self.rejected

    @property
    def seen(self) -> int:
        """Return the number of admitted requests without copies."""
        return self.admitted - self.copies

    @property
    def seen_errors(self) -> int:
        """Return the number of failed requests without copies."""
        return self.errors - self.copy_errors

    @property
    def error_rate(self) -> float | None:
        """Return failed over admitted requests, 0 to 1, without copies; `None` if none was admitted."""
        return self.seen_errors / self.seen if self.seen else None

    @property
    def cached_share(self) -> float | None:
        """Return the share of input tokens read from a cache, 0 to 1; `None` if no input is known."""
        if not self.input_tokens or self.cached_input_tokens is None:
            return None
        return self.cached_input_tokens / self.input_tokens

    @classmethod
    def from_row(cls, row: Mapping[str, object]) -> Self:
        """Return the volume of a row of volumes.sql."""
        requests, rejected = number_of(row["request_count"]), number_of(row["rejected_count"])
        unpriced, unknown = number_of(row["unpriced_count"]), number_of(row["unknown_usage_count"])
        admitted = requests - rejected
        failed = number_of(row["failed_count"])
        nothing_reported = unknown > 0 and unknown + failed >= admitted
        nothing_priced = unpriced + unknown > 0 and unpriced + unknown + failed >= admitted
        return cls(
            requests=requests,
            errors=number_of(row["error_count"]),
            rejected=rejected,
            cancelled=number_of(row["cancelled_count"]),
            streamed=number_of(row["streamed_count"]),
            input_tokens=None if nothing_reported else number_of(row["input_sum"]),
            cached_input_tokens=None if nothing_reported else number_of(row["cached_input_sum"]),
            output_tokens=None if nothing_reported else number_of(row["output_sum"]),
            cost_usd=None if nothing_priced else money_of(row["cost_sum"]),
            unpriced_requests=unpriced,
            unknown_usage_requests=unknown,
            failed_requests=failed,
            copies=number_of(row["copy_count"]),
            copy_errors=number_of(row["copy_error_count"]),
        )
