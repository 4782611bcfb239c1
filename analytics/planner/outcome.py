"""Result of a simulation: latency, utilisation and cost."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal

from analytics.planner.gap_histogram import GapHistogram
from analytics.planner.setup import ReplicaSetup

_HOUR_NS = 3_600_000_000_000
_PICO = Decimal("0.000000000001")


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles in milliseconds: time to first token exact (nearest rank), inter-token latency accurate to 1 %."""

    p50: float
    p90: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class ReplicaUse:
    """One replica's run: busy share of time, highest cache use, and tokens computed again."""

    busy_share: float
    peak_kv_share: float
    steps: int
    computed_tokens: int
    preemptions: int
    recomputed_tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run's result. `cost_usd` covers all replicas from the first arrival to the last token; `None`: unknown price.

    `ttft_ms` and `gap_ms` are `None` without tokens. `refused` requests fit into no replica's cache.
    """

    requests: int
    served: int
    refused: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    seconds: float
    ttft_ms: Percentiles | None
    gap_ms: Percentiles | None
    replicas: tuple[ReplicaUse, ...]
    cost_usd: Decimal | None
    usd_per_million_output_tokens: Decimal | None

    @classmethod
    def of(
        cls,
        *,
        ttft_ns: list[float],
        gaps: GapHistogram,
        requests: int,
        refused: int,
        served: int,
        input_tokens: int,
        output_tokens: int,
        cached_tokens: int,
        span_ns: float,
        replicas: Sequence[ReplicaUse],
        setups: Sequence[ReplicaSetup],
    ) -> "Outcome":
        """Return the summary of a run."""
        cost = _cost(setups, span_ns)
        each = None
        if cost is not None and output_tokens:
            each = (cost * 1_000_000 / output_tokens).quantize(_PICO)
        return cls(
            requests,
            served,
            refused,
            input_tokens,
            cached_tokens,
            output_tokens,
            span_ns / 1e9,
            _percentiles(ttft_ns),
            _of_gaps(gaps),
            tuple(replicas),
            cost,
            each,
        )

    @property
    def busy_share(self) -> float:
        """Return the mean share of time in which replicas were busy."""
        return sum(one.busy_share for one in self.replicas) / len(self.replicas)

    def as_json(self) -> dict[str, object]:
        """Return the JSON values that `tollkeeper plan --json` prints; money is exact decimal text."""
        found = asdict(self)
        found["busy_share"] = round(self.busy_share, 4)
        for name in ("cost_usd", "usd_per_million_output_tokens"):
            found[name] = None if found[name] is None else format(found[name], "f")
        return found


def _percentiles(values_ns: list[float]) -> Percentiles | None:
    if not values_ns:
        return None
    ordered = sorted(values_ns)
    p50, p90, p95, p99 = (
        round(ordered[max(math.ceil(share * len(ordered)), 1) - 1] / 1e6, 3) for share in (0.5, 0.9, 0.95, 0.99)
    )
    return Percentiles(p50, p90, p95, p99)


def _of_gaps(gaps: GapHistogram) -> Percentiles | None:
    found = [gaps.quantile_ns(share) for share in (0.5, 0.9, 0.95, 0.99)]
    if any(one is None for one in found):
        return None
    p50, p90, p95, p99 = (round((one or 0.0) / 1e6, 3) for one in found)
    return Percentiles(p50, p90, p95, p99)


def _cost(setups: Sequence[ReplicaSetup], span_ns: float) -> Decimal | None:
    """Return the price of the replicas' time; `None` if any replica has no price."""
    total = Decimal(0)
    for setup in setups:
        if setup.usd_per_gpu_hour is None:
            return None
        total += setup.usd_per_gpu_hour * setup.ranks
    return (total * Decimal(round(span_ns)) / _HOUR_NS).quantize(_PICO)
