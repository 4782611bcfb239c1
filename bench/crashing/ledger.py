"""The store's books against what clients were answered, against their own rollups, and against the budget's total."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from backends.store.client import StoreClient
from contracts.pricing.money import PICO_USD_PER_USD

_COUNT: Final = {"requests": "sum(requests)"}
_ALL: Final = {**_COUNT, "output_tokens": "sum(output_tokens)", "charged": "sum(charged_usd)"}
DERIVED: Final[Mapping[str, Mapping[str, str]]] = {
    "requests_minute": _ALL,
    "requests_hour": _ALL,
    "requests_day": _ALL,
    "tenant_cost_day": _ALL,  # made of requests_day
    "tenant_hour": _COUNT,  # made of requests_hour, as the next
    "model_hour": _COUNT,
    "latency_day": _COUNT,
    "model_latency_day": _COUNT,  # made of latency_day
    "requests_recent": {"requests": "count()"},
}
_ROWS: Final = """
SELECT lower(replaceAll(toString(request_id), '-', '')) AS id, count() AS copies, any(tokens_output_text) AS tokens
FROM requests GROUP BY request_id
"""
_BASE: Final = """
SELECT count() AS requests, sum(ifNull(tokens_output_text, 0)) AS output_tokens, sum(ifNull(charged_usd, 0)) AS charged
FROM requests
"""
_SHARED: Final = """
SELECT countIf(receipts > 1) AS batches
FROM (SELECT batch_id, uniqExact(received_at_ns) AS receipts FROM batch_claims GROUP BY batch_id)
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How books and clients differ.

    `unacknowledged` are rows of requests whose client heard no whole answer; `shared_batches` came to two collectors.
    """

    stored: int
    lost: int
    doubled: int
    different: int
    unacknowledged: int
    rollup_difference: int
    charged_pico_usd: int
    shared_batches: int


def compare(store: StoreClient, acknowledged: Mapping[str, int]) -> Comparison:
    """Compare the store with the clients' counts: output tokens by request id."""
    rows = {str(row["id"]): row for row in store.query(_ROWS)}
    found = {name: rows[name] for name in acknowledged if name in rows}
    (base,) = store.query(_BASE)
    return Comparison(
        stored=len(rows),
        lost=len(acknowledged) - len(found),
        doubled=sum(int(str(row["copies"])) - 1 for row in rows.values()),
        different=sum(row["tokens"] != acknowledged[name] for name, row in found.items()),
        unacknowledged=len(rows) - len(found),
        rollup_difference=sum(_differences(store, table, base) for table in DERIVED),
        charged_pico_usd=int(Decimal(str(base["charged"])) * PICO_USD_PER_USD),
        shared_batches=int(str(store.query(_SHARED)[0]["batches"])),
    )


def _differences(store: StoreClient, table: str, base: Mapping[str, Any]) -> int:
    """Return by how many requests and tokens a rollup differs; money that differs counts as one."""
    columns = ", ".join(f"{expression} AS {name}" for name, expression in DERIVED[table].items())
    (rollup,) = store.query(f"SELECT {columns} FROM {table}")
    counted = sum(abs(int(str(rollup[name])) - int(str(base[name]))) for name in rollup if name != "charged")
    return counted + ("charged" in rollup and Decimal(str(rollup["charged"])) != Decimal(str(base["charged"])))
