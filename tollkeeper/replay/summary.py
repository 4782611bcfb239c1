"""The results of a run as clients measured them: counts, tokens, latency percentiles."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain

from tollkeeper.replay.chat import CANCELLED, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The trace and settings of a run."""

    run_id: str
    trace: str
    format: str
    model: str
    speed: float
    scale_lengths: float
    context_tokens: int | None
    scaled_to_fit: int  # number of requests that exceeded the context


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTotals:
    """The store's totals of a run. Cost is USD as decimal text; `None` if a request is unpriced."""

    requests: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    cost_usd: str | None
    unpriced_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run. Tokens are those that the gateway's `usage` reported; times are the client's.

    `errors`: failed answers; `cancelled`: answers abandoned when the run was interrupted. TTFT counts from sending;
    lateness is the delay of sending. `tokens_out_wanted`: output tokens of complete answers according to the trace;
    `other_length`: answers with another number; `without_usage`: answers without a count. `stored` is `None` if the
    store was not queried or did not answer; `stored_match`: the store has exactly the complete answers and their
    tokens.
    """

    setting: Setting
    requests: int
    ok: int
    errors: int
    cancelled: int
    is_interrupted: bool
    error_codes: Mapping[str, int]
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    tokens_out_wanted: int
    other_length: int
    without_usage: int
    duration_s: float
    requests_per_s: float
    tokens_out_per_s: float
    most_in_flight: int
    ttft_ms_p50: float | None
    ttft_ms_p95: float | None
    ttft_ms_p99: float | None
    itl_ms_p50: float | None
    itl_ms_p95: float | None
    itl_ms_p99: float | None
    lateness_ms_p50: float | None
    lateness_ms_p99: float | None
    lateness_ms_max: float | None
    by_tenant: Mapping[str, int] = field(default_factory=dict)  # requests by tenant
    stored: StoredTotals | None = None
    stored_match: bool | None = None

    def as_json(self) -> dict[str, object]:
        """Return the summary as JSON types, starting with the settings."""
        fields = asdict(self)
        return {**fields.pop("setting"), **fields}


def summarise(
    setting: Setting, outcomes: Sequence[Outcome], *, began_at: float, most_in_flight: int, is_complete: bool
) -> Summary:
    """Summarise outcomes. `began_at` is on the outcomes' clock; the duration ends with the last answer."""
    good = [outcome for outcome in outcomes if not outcome.error]
    codes = Counter(outcome.error for outcome in outcomes if outcome.error)
    cancelled = codes.pop(CANCELLED, 0)
    duration = max((outcome.done_at for outcome in outcomes), default=began_at) - began_at
    tokens_out = sum(outcome.output_tokens or 0 for outcome in good)
    ttft = sorted(seconds for outcome in good if (seconds := outcome.ttft_seconds) is not None)
    gaps = sorted(chain.from_iterable(outcome.gaps for outcome in good))
    late = sorted(outcome.late_seconds for outcome in outcomes)
    return Summary(
        setting=setting,
        requests=len(outcomes),
        ok=len(good),
        errors=codes.total(),
        cancelled=cancelled,
        is_interrupted=not is_complete,
        error_codes=dict(codes.most_common()),
        tokens_in=sum(outcome.input_tokens or 0 for outcome in good),
        tokens_cached=sum(outcome.cached_tokens or 0 for outcome in good),
        tokens_out=tokens_out,
        tokens_out_wanted=sum(outcome.wanted_output_tokens for outcome in good),
        other_length=sum(outcome.output_tokens not in (None, outcome.wanted_output_tokens) for outcome in good),
        without_usage=sum(outcome.output_tokens is None for outcome in good),
        duration_s=round(duration, 3),
        requests_per_s=_rate(len(good), duration),
        tokens_out_per_s=_rate(tokens_out, duration),
        most_in_flight=most_in_flight,
        ttft_ms_p50=percentile_ms(ttft, 0.5),
        ttft_ms_p95=percentile_ms(ttft, 0.95),
        ttft_ms_p99=percentile_ms(ttft, 0.99),
        itl_ms_p50=percentile_ms(gaps, 0.5),
        itl_ms_p95=percentile_ms(gaps, 0.95),
        itl_ms_p99=percentile_ms(gaps, 0.99),
        lateness_ms_p50=percentile_ms(late, 0.5),
        lateness_ms_p99=percentile_ms(late, 0.99),
        lateness_ms_max=percentile_ms(late, 1.0),
        by_tenant=count_by_tenant(outcomes),
    )


def percentile_ms(ascending: Sequence[float], share: float) -> float | None:
    """Return a percentile (nearest rank) of ascending values in seconds, in milliseconds; `None` if there are none."""
    if not ascending:
        return None
    return round(ascending[max(0, math.ceil(share * len(ascending)) - 1)] * 1000, 3)


def count_by_tenant(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Return the number of requests by tenant, largest first."""
    return dict(Counter(outcome.tenant for outcome in outcomes).most_common())


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 3) if seconds > 0 else 0.0
