"""The overview: what was asked, used and spent in a scope, how fast, in all and by tenant and model."""

from dataclasses import dataclass, field, replace
from typing import Final, Self

from analytics.percentiles import EXACT_SAMPLES, GroupKey, Latency, LatencyTable, Method, latencies, raw_samples
from analytics.queries import query
from analytics.rows import number_of, text_of
from analytics.scope import Period, Scope
from analytics.volume import Volume
from backends.store.client import StoreClient

MAX_LINES: Final = 500  # more than anyone reads in one table; filter, or ask the export


@dataclass(frozen=True, slots=True)
class Line:
    """One tenant's use of one model. An empty model is one that was asked for but not served."""

    tenant: str
    model: str
    volume: Volume
    latency: Latency


@dataclass(frozen=True, slots=True)
class Overview:
    """The answer. `covered` is what every number here covers; see `analytics.scope`.

    `lines` are sorted by cost, then requests, highest first; `has_more_lines` says that the rest was cut off.
    `method` is how the percentiles were found: "exact", or "sketch" within 1 % of each value. Without `has_latency`
    they were not asked for, and no `latency` says anything. `ttft_samples` and `gap_samples` say how many
    times there are.
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
        """Return whether not one request was recorded."""
        return self.total.requests == 0

    @property
    def output_tokens_per_second(self) -> float | None:
        """Return mean output tokens per second over the covered range, up to now; `None` if unknown."""
        output = self.total.output_tokens
        seconds = (min(self.covered.end, self.scope.end) - self.covered.start).total_seconds()
        return None if output is None or seconds <= 0 else output / seconds


def overview(store: StoreClient, scope: Scope, *, is_quick: bool = False) -> Overview:
    """Answer the overview's questions with two reads. Raises StoreUnavailable if the store does not answer.

    `is_quick` leaves out percentiles that would take seconds, as those of a day that is not over: of more than five
    million gaps in rows, which no state of a whole day holds.
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
    """The percentiles that a quick overview left out: of its scope, as many samples as it counted, and its lines.

    Two of one scope are equal: what has been counted since is no other question.
    """

    scope: Scope
    ttft_samples: int = field(compare=False)
    gap_samples: int = field(compare=False)
    shown: tuple[GroupKey, ...] = field(compare=False, repr=False)

    @classmethod
    def of(cls, quick: Overview) -> Self:
        """Ask of all that the overview covers, which stays the same for as long as its hours or days do."""
        shown = tuple((line.tenant, line.model) for line in quick.lines)
        return cls(quick.scope.settled, quick.ttft_samples, quick.gap_samples, shown)


def overview_latency(store: StoreClient, question: LatencyQuestion) -> LatencyTable:
    """Find the percentiles alone: the sums are there already. May take seconds. Raises StoreUnavailable."""
    return latencies(
        store,
        question.scope,
        ttft_samples=question.ttft_samples,
        gap_samples=question.gap_samples,
        shown=question.shown,
    )


def with_latency(quick: Overview, speed: LatencyTable) -> Overview:
    """Return a quick overview its percentiles, of the same period and perhaps a minute older.

    What came since then has none in its line.
    """
    lines = tuple(replace(line, latency=speed.groups.get((line.tenant, line.model), Latency())) for line in quick.lines)
    return replace(quick, latency=speed.total, method=speed.method, lines=lines, has_latency=True)
