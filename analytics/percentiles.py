"""Percentiles of time to first token and inter-token latency: exact, or from sketches if that would be slow."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from analytics.queries import query
from analytics.rows import number_of, numbers_of, text_of
from analytics.scope import Scope
from backends.store.client import StoreClient
from contracts.metering.gaps import GAP_UNIT_NS

Method = Literal["exact", "sketch"]
GroupKey = tuple[str, str]  # tenant, model

EXACT_SAMPLES: Final = 5_000_000  # token gaps and first tokens that take about 0.3 s to unnest on one core


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Percentiles of `count` measured durations, in nanoseconds."""

    count: int
    p50_ns: float
    p95_ns: float
    p99_ns: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of one group. `None` without measurements: no first token, or no second one."""

    ttft: Quantiles | None = None
    gap: Quantiles | None = None


@dataclass(frozen=True, slots=True)
class LatencyTable:
    """Percentiles in total and by tenant and model, and the method by which they were computed."""

    method: Method
    total: Latency
    groups: Mapping[GroupKey, Latency]


def latencies(
    store: StoreClient, scope: Scope, *, ttft_samples: int, gap_samples: int, shown: Collection[GroupKey] = ()
) -> LatencyTable:
    """Return the percentiles of a scope, from table `requests` if that is fast, else from sketches.

    `shown` are the groups (tenant, model) to return; empty: all.

    The numbers of samples are from the rollup. Rows of `requests` expire before rollups, so the exact method is used
    only if it finds at least as many samples as the rollup. Raises StoreUnavailable.
    """
    exactly, sketched = "percentiles_exact", "percentiles_sketch"
    if scope.team is not None or scope.project is not None:
        exactly, sketched = "percentiles_within", "percentiles_within_sketch"
    elif scope.tenant is not None:
        sketched = "percentiles_sketch_of_tenant"
    if max(ttft_samples, gap_samples) <= EXACT_SAMPLES:
        exact = _read(store, scope, exactly, "exact", shown)
        if _count(exact.total.ttft) >= ttft_samples and _count(exact.total.gap) >= gap_samples:
            return exact
    return _read(store, scope, sketched, "sketch", shown)


def raw_samples(scope: Scope, samples: int) -> int:
    """Estimate the number of a scope's samples outside whole days, whose sketches must be computed from rows."""
    covered, days = scope.covered, scope.whole_days
    whole_s, all_s = days.end_s - days.start_s, covered.end_s - covered.start_s
    return samples * (all_s - whole_s) // all_s


def _read(store: StoreClient, scope: Scope, name: str, method: Method, shown: Collection[GroupKey]) -> LatencyTable:
    days = scope.whole_days
    total, groups = Latency(), {}
    since = scope.covered.start if method == "exact" else scope.rows_since
    source = "requests_recent" if scope.tenant is None and scope.keeps_in_time(since) else "requests"
    bounds = {"first_day": days.start_s, "end_day": days.end_s}
    wanted = {
        "shown": [f"{tenant}/{model}" for tenant, model in shown],
        "shown_tenants": sorted({name for name, _ in shown}),
    }
    parameters = {**scope.parameters(), **bounds, **wanted, "source": source}
    for row in store.query(query(name), parameters):
        latency = Latency(
            ttft=_quantiles(row["ttft_samples"], row["ttft_levels"], unit_ns=1),
            gap=_quantiles(row["gap_samples"], row["gap_levels"], unit_ns=GAP_UNIT_NS),
        )
        if number_of(row["is_total"]):
            total = latency
        else:
            groups[text_of(row["tenant"]), text_of(row["model"])] = latency
    return LatencyTable(method, total, groups)


def _quantiles(count: object, levels: object, *, unit_ns: int) -> Quantiles | None:
    samples = number_of(count)
    if not samples:
        return None
    p50, p95, p99 = (level * unit_ns for level in numbers_of(levels))
    return Quantiles(samples, p50, p95, p99)


def _count(quantiles: Quantiles | None) -> int:
    return 0 if quantiles is None else quantiles.count
