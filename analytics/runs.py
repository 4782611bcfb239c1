"""Totals of one run (a replay or load test), by the run id in its requests."""

from dataclasses import dataclass
from decimal import Decimal

from analytics.queries import query
from analytics.rows import money_of, number_of
from analytics.scope import Period
from backends.store.client import StoreClient


@dataclass(frozen=True, slots=True)
class RunTotals:
    """A run's sums. `ok` and `ok_output_tokens` cover complete answers only, the others all requests.

    `cost_usd` is the cost of the priced requests; `unpriced` counts the others that reached a model.
    """

    requests: int
    ok: int
    unpriced: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    ok_output_tokens: int
    cost_usd: Decimal


def run_totals(store: StoreClient, run_id: str, period: Period, tenant: str | None = None) -> RunTotals:
    """Return the sums of a run's requests in a period, of one tenant or (`None`) all. Raises StoreUnavailable."""
    parameters = {"run_id": run_id, "tenant": tenant, "start": period.start_s, "end": period.end_s}
    (row,) = store.query(query("run"), parameters)
    return RunTotals(
        requests=number_of(row["request_count"]),
        ok=number_of(row["ok_count"]),
        unpriced=number_of(row["unpriced_count"]),
        input_tokens=number_of(row["input_sum"]),
        cached_input_tokens=number_of(row["cached_input_sum"]),
        output_tokens=number_of(row["output_sum"]),
        ok_output_tokens=number_of(row["ok_output_sum"]),
        cost_usd=money_of(row["cost_sum"]),
    )
