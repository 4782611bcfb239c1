"""GPU time over time by tenant and team."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from analytics.queries import query
from analytics.rows import column_of, number_of, text_of
from analytics.scope import Scope
from backends.store.client import StoreClient


@dataclass(frozen=True, slots=True)
class GpuUse:
    """GPU nanoseconds by tenant and team (empty if a key has none), one entry per step (starts, UTC).

    A request's whole time counts in the step in which it began. `requests` is the number of those with GPU time.
    `is_complete` is false while the store is still being read.
    """

    step: timedelta
    steps: tuple[datetime, ...]
    teams: Mapping[tuple[str, str], tuple[int, ...]]
    requests: Mapping[tuple[str, str], int]
    is_complete: bool = True

    @property
    def total_ns(self) -> int:
        """Return the sum over all tenants, in ns."""
        return sum(sum(by_step) for by_step in self.teams.values())


def gpu_use(store: StoreClient, scope: Scope) -> GpuUse:
    """Return the GPU time charged to a scope's requests, from the rollups. Raises StoreUnavailable."""
    starts = scope.step_starts
    parameters = {
        **scope.parameters(),
        "rollup": scope.edges_rollup if scope.grain == "hour" else f"requests_{scope.grain}",
        "step": starts.step,
        "first_step": starts.start,
        "step_count": len(starts),
    }
    teams: dict[tuple[str, str], tuple[int, ...]] = {}
    requests: dict[tuple[str, str], int] = {}
    for row in store.query(query("gpu_use"), parameters):
        payer = (text_of(row["tenant_label"]), text_of(row["team_label"]))
        teams[payer] = tuple(column_of(row["gpu_sums"]))
        requests[payer] = number_of(row["request_count"])
    ordered = sorted(teams, key=lambda payer: (-sum(teams[payer]), payer))
    return GpuUse(
        timedelta(seconds=starts.step),
        tuple(datetime.fromtimestamp(start, UTC) for start in starts),
        {payer: teams[payer] for payer in ordered},
        requests,
    )
