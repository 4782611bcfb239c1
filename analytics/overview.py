"""Requests, usage, cost and latency of a scope, in total and by tenant and model."""

from dataclasses import dataclass, field, replace
from typing import Final, Self

from analytics.percentiles import EXACT_SAMPLES, GroupKey, Latency, LatencyTable, Method, latencies, raw_samples
from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period, Scope
from analytics.volume import Volume
from backends.store.client import StoreClient

MAX_LINES: Final = 500  # rows of the table; exports have all


@dataclass(frozen=True, slots=True)
class Line:
    """One tenant's use of one model; the model is empty for requests that no model served."""

    tenant: str
    model: str
    volume: Volume
    latency: Latency


@dataclass(frozen=True, slots=True)
class Overview:
    """Totals and lines of a scope. `covered` is the range that every number covers; see `analytics.scope`.

    `lines` are sorted by cost, then requests, highest first; `has_more_lines`: the rest was cut off. `method` of the
    percentiles is "exact", or "sketch" with an error of up to 1 %. Without `has_latency` they were not computed, and
    `latency` values are `None`. `ttft_samples` and `gap_samples` are the numbers of measured times.
    """

    scope: Scope
    covered: Period
    total: Volume
    latency: Latency
    method: Method
    lines: tuple[Line, ...]
    has_more_lines: bool = False
    has_latency: bool = True
    ttft_samples: int = 0
    gap_samples: int = 0

    @property
    def is_empty(self) -> bool:
        """Return whether no request was recorded."""
        return self.total.requests == 0

    @property
    def output_tokens_per_second(self) -> float | None:
        """Return mean output tokens per second over the covered range, up to now; `None` if unknown."""
        output = self.total.output_tokens
        seconds = (min(self.covered.end, self.scope.end) - self.covered.start).total_seconds()
        return None if output is None or seconds <= 0 else output / seconds


def overview(store: StoreClient, scope: Scope, *, is_quick: bool = False) -> Overview:
    """Return the overview of a scope, by two queries. Raises StoreUnavailable.

    `is_quick` leaves out percentiles that would take seconds: those of more than five million token gaps outside whole
    days, for which there are no sketches, such as today's.
    """
    days = scope.whole_days
    parameters = {
        **scope.parameters(),
        "rollup": scope.edges_rollup,
        "days": scope.days_rollup,
        "first_day": days.start_s,
        "end_day": days.end_s,
        "row_limit": MAX_LINES + 2,
    }
    total, groups = Volume(), []
    ttft_samples = gap_samples = 0
    for row in store.query(query("volumes"), parameters):
        volume = Volume.from_row(row)
        if number_of(row["is_total"]):
            total = volume
            ttft_samples, gap_samples = number_of(row["ttft_samples"]), number_of(row["gap_samples"])
        else:
            groups.append((text_of(row["tenant"]), text_of(row["model"]), volume))
    shown = [(tenant, model) for tenant, model, _ in groups[:MAX_LINES]]
    samples = max(ttft_samples, gap_samples)
    has_latency = not is_quick or samples <= EXACT_SAMPLES or raw_samples(scope, samples) <= EXACT_SAMPLES
    speed = LatencyTable("sketch", Latency(), {})
    if has_latency:
        speed = latencies(store, scope, ttft_samples=ttft_samples, gap_samples=gap_samples, shown=shown)
    lines = tuple(
        Line(tenant, model, volume, speed.groups.get((tenant, model), Latency()))
        for tenant, model, volume in groups[:MAX_LINES]
    )
    return Overview(
        scope,
        scope.covered,
        total,
        speed.total,
        speed.method,
        lines,
        has_more_lines=len(groups) > MAX_LINES,
        has_latency=has_latency,
        ttft_samples=ttft_samples,
        gap_samples=gap_samples,
    )


@dataclass(frozen=True, slots=True)
class LatencyQuestion:
    """Input for the percentiles that a quick overview left out: its scope, its numbers of samples and its lines.

    Two for one scope are equal, so that a cache is not invalidated by new requests.
    """

    scope: Scope
    ttft_samples: int = field(compare=False)
    gap_samples: int = field(compare=False)
    shown: tuple[GroupKey, ...] = field(compare=False, repr=False)

    @classmethod
    def of(cls, quick: Overview) -> Self:
        """Return the question for all of an overview's range, which changes only with its hours or days."""
        shown = tuple((line.tenant, line.model) for line in quick.lines)
        return cls(quick.scope.settled, quick.ttft_samples, quick.gap_samples, shown)


def overview_latency(store: StoreClient, question: LatencyQuestion) -> LatencyTable:
    """Compute the percentiles only. May take seconds. Raises StoreUnavailable."""
    return latencies(
        store,
        question.scope,
        ttft_samples=question.ttft_samples,
        gap_samples=question.gap_samples,
        shown=question.shown,
    )


def with_latency(quick: Overview, speed: LatencyTable) -> Overview:
    """Return a quick overview with percentiles of the same period, which may be a minute older.

    Lines that are newer than the percentiles have none.
    """
    lines = tuple(replace(line, latency=speed.groups.get((line.tenant, line.model), Latency())) for line in quick.lines)
    return replace(quick, latency=speed.total, method=speed.method, lines=lines, has_latency=True)
