"""Fits standard cost cards to actual GPU cost: three rates per model that recover the whole cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period
from backends.store.client import StoreClient
from contracts.errors import InvalidRequest
from contracts.pricing.prices import StandardCostCard

MIN_HOURS: Final = 2  # fewer do not show how much hours differ
MIN_REQUESTS: Final = 10
MAX_ERROR: Final = 0.5  # share of the hours' GPU time, on average
MAX_OVERHEAD: Final = 19  # times the cost of use: a GPU that is busy for less than a twentieth of its time


@dataclass(frozen=True, slots=True)
class ModelHour:
    """Use of one model's measured requests in one hour: tokens, and GPU nanoseconds by phase."""

    model: str
    start_s: int
    requests: int
    uncached_tokens: int
    cached_tokens: int
    output_tokens: int
    prefill_ns: int
    decode_ns: int

    @property
    def tokens(self) -> int:
        """Return the number of all tokens."""
        return self.uncached_tokens + self.cached_tokens + self.output_tokens

    @property
    def gpu_ns(self) -> int:
        """Return the GPU time of both phases, in ns."""
        return self.prefill_ns + self.decode_ns


@dataclass(frozen=True, slots=True)
class StandardFit:
    """A fitted card and its evidence.

    `overhead` is the cost of idle and wasted time per cost of use, such as 0.25; `cached_share` the part of the input
    that came from a cache; `error` the mean relative error of the rates against each phase's measured time, over hours.
    """

    card: StandardCostCard
    period: Period
    hours: int
    pico_usd_per_gpu_s: int
    overhead: float
    cached_share: float
    overhead_pico_usd_per_hour: int
    error: float
    requests: int = 0

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return why the rates are implausible, each reason with figure and limit; empty if they are plausible."""
        card, found = self.card, []
        for name, rate in (("uncached input", card.input_rate), ("output", card.output_rate)):
            if rate <= 0:
                found.append(f"{name} would cost {usd_per_mtok(rate)} USD per million tokens; it must cost something")
        if card.cached_input_rate > card.input_rate:
            found.append(
                f"cached input would cost {usd_per_mtok(card.cached_input_rate)} USD per million tokens, more than "
                f"uncached input at {usd_per_mtok(card.input_rate)}; reading a cache takes less than computing"
            )
        if self.error > MAX_ERROR:
            found.append(
                f"the rates miss an hour's GPU time by {self.error:.0%} on average, more than {MAX_ERROR:.0%}: the "
                "hours differ too much to compute a cost per token"
            )
        if self.requests < MIN_REQUESTS:
            found.append(f"{self.requests} requests were measured; {MIN_REQUESTS} or more are needed")
        if self.overhead > MAX_OVERHEAD:
            found.append(
                f"idle time would cost {self.overhead:.0f} times the use, more than {MAX_OVERHEAD}; fit a busier period"
            )
        return tuple(found)

    def evidence(self) -> dict[str, object]:
        """Return the evidence that is stored with the card, to explain variances later."""
        return {
            "from": self.period.start.isoformat(),
            "to": self.period.end.isoformat(),
            "hours": self.hours,
            "pico_usd_per_gpu_s": str(self.pico_usd_per_gpu_s),
            "overhead": repr(self.overhead),
            "cached_share": repr(self.cached_share),
            "overhead_pico_usd_per_hour": str(self.overhead_pico_usd_per_hour),
            "error": repr(self.error),
            "requests": self.requests,
        }


def model_hours(store: StoreClient, period: Period, model: str | None = None) -> list[ModelHour]:
    """Read the use of self-hosted models, sorted by model and hour. Raises StoreUnavailable."""
    parameters = {"start": period.start_s, "end": period.end_s, "tenant": None, "model": model}
    return [
        ModelHour(
            text_of(row["model_label"]),
            number_of(row["hour_start"]),
            number_of(row["request_count"]),
            number_of(row["uncached_sum"]),
            number_of(row["cached_sum"]),
            number_of(row["output_sum"]),
            number_of(row["prefill_sum"]),
            number_of(row["decode_sum"]),
        )
        for row in store.query(query("model_gpu_hours"), parameters)
    ]


def fit_standard_cost(
    model: str, version: str, hours: Sequence[ModelHour], period: Period, busy_pico_usd: int, other_pico_usd: int
) -> StandardFit:
    """Fit a card to the hours of one model. Raises InvalidRequest if they are too few, or have no use or no cost.

    Prefill takes `a` ns per uncached and `b` ns per cached token (non-negative least squares over the hours), decode
    `c` ns per output token (a ratio). Rates are these times the cost per nanosecond of use, including `other_pico_usd`
    (idle time, loading, recomputation), scaled so that the card charges for these hours exactly their cost, up to
    rounding. A kind of token without data gets the rate of the nearest kind.
    """
    measured = [hour for hour in hours if hour.gpu_ns and hour.tokens]
    if len(measured) < MIN_HOURS:
        raise InvalidRequest(
            f"model {model!r} was measured in {len(measured)} hours of the range; a card needs {MIN_HOURS} or more"
        )
    total = busy_pico_usd + other_pico_usd
    used_ns = sum(hour.gpu_ns for hour in measured)
    if total <= 0:
        raise InvalidRequest(
            f"model {model!r} has no cost in the range: no GPU rate is valid (`tollkeeper rates create`)"
        )
    uncached_ns, cached_ns = _prefill_rates(measured)
    output = sum(hour.output_tokens for hour in measured)
    output_ns = sum(hour.decode_ns for hour in measured) / output if output else 0.0
    tokens = [sum(getattr(hour, name) for hour in measured) for name in ("uncached_tokens", "cached_tokens")]
    predicted = uncached_ns * tokens[0] + cached_ns * tokens[1] + output_ns * output
    if predicted <= 0:
        raise InvalidRequest(f"model {model!r}: its GPU time has no counted tokens, so no rate can be computed")
    # A kind of token without data is not free: it gets the rate of the nearest kind.
    if not tokens[0]:
        uncached_ns = cached_ns if tokens[1] else output_ns
    cached_ns = cached_ns if tokens[1] else uncached_ns
    output_ns = output_ns if output else uncached_ns
    per_ns = total / predicted
    card = StandardCostCard(
        model,
        version,
        period.end,
        round(uncached_ns * per_ns),
        round(cached_ns * per_ns),
        round(output_ns * per_ns),
    )
    errors = [
        abs(
            uncached_ns * hour.uncached_tokens
            + cached_ns * hour.cached_tokens
            + output_ns * hour.output_tokens
            - hour.gpu_ns
        )
        / hour.gpu_ns
        for hour in measured
    ]
    length_hours = (period.end - period.start).total_seconds() / 3600
    return StandardFit(
        card=card,
        period=period,
        hours=len(measured),
        pico_usd_per_gpu_s=round(busy_pico_usd / used_ns * 10**9),
        overhead=other_pico_usd / busy_pico_usd if busy_pico_usd else 0.0,
        cached_share=tokens[1] / (tokens[0] + tokens[1]) if tokens[0] + tokens[1] else 0.0,
        overhead_pico_usd_per_hour=round(other_pico_usd / length_hours),
        error=math.fsum(errors) / len(errors),
        requests=sum(hour.requests for hour in measured),
    )


def usd_per_mtok(rate: int) -> Decimal:
    """Return a rate in pico-USD per token as USD per million tokens."""
    return Decimal(rate).scaleb(-6)


def card_version(model: str, until: datetime) -> str:
    """Return the version of a fitted card, made of its model and the end of its hours."""
    return f"{model}/fitted/{until:%Y-%m-%dT%H%MZ}"


def _prefill_rates(hours: Sequence[ModelHour]) -> tuple[float, float]:
    """Return ns per uncached and per cached token by non-negative least squares."""
    a11 = math.fsum(float(hour.uncached_tokens) ** 2 for hour in hours)
    a12 = math.fsum(float(hour.uncached_tokens) * hour.cached_tokens for hour in hours)
    a22 = math.fsum(float(hour.cached_tokens) ** 2 for hour in hours)
    b1 = math.fsum(float(hour.uncached_tokens) * hour.prefill_ns for hour in hours)
    b2 = math.fsum(float(hour.cached_tokens) * hour.prefill_ns for hour in hours)
    determinant = a11 * a22 - a12 * a12
    if determinant > 1e-9 * a11 * a22:
        uncached, cached = (b1 * a22 - b2 * a12) / determinant, (b2 * a11 - b1 * a12) / determinant
        if uncached >= 0 and cached >= 0:
            return uncached, cached
    # At the bound one of the two is 0. A hit takes nearly no prefill, so the uncached tokens get the time.
    return (b1 / a11, 0.0) if a11 else (0.0, b2 / a22 if a22 else 0.0)
