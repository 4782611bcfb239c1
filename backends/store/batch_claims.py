"""Claims of collectors on batches: the first claim in the store wins.

A sender that gets no answer sends its batch again, perhaps to another collector. The store deduplicates inserts of a
single batch by its id, but not inserts of several batches. So every collector writes claims before an insert, reads all
claims, and leaves out batches that another collector claimed first.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

import pyarrow

from contracts.recording.ids import bounded_id

TABLE: Final = "batch_claims"
# The first committed claim wins; within one block, which is of one collector, the first received.
WINNERS: Final = (
    "SELECT batch_id, argMin(received_at_ns, (_block_number, received_at_ns)) AS first_received_at_ns FROM batch_claims"
)
_LOOK: Final = f"{WINNERS} WHERE batch_id IN {{ids:Array(String)}} GROUP BY batch_id"
_ENGINE: Final = "SELECT engine FROM system.tables WHERE database = currentDatabase() AND name = {name:String}"


class ClaimStore(Protocol):
    """The methods of the store's client that claims need."""

    def insert_arrow(self, table: str, data: pyarrow.Table, *, deduplication_token: str) -> None:
        """Insert rows. Raises what StoreClient does."""

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        """Return a query's rows. Raises what StoreClient does."""


class BatchClaims:
    """Claims batches in one store. Every method raises what StoreClient does."""

    def __init__(self, store: ClaimStore) -> None:
        self._store = store

    def are_ordered(self) -> bool:
        """Return whether the store orders claims; false for replicated tables, which number blocks before
        the commit.
        """
        return [row["engine"] for row in self._store.query(_ENGINE, {"name": TABLE})] == ["MergeTree"]

    def claim(self, received_at_ns: Mapping[str, int]) -> set[str]:
        """Claim batches, given by id with the time of receipt (Unix ns); return the ids that this collector has won.

        Repeating a claim gives the same result as long as claims are kept.
        """
        if not received_at_ns:
            return set()
        names = {batch_id: bounded_id(batch_id) for batch_id in received_at_ns}
        data = pyarrow.table(
            {
                "batch_id": pyarrow.array(list(names.values()), pyarrow.string()),
                "received_at_ns": pyarrow.array(list(received_at_ns.values()), pyarrow.uint64()),
            }
        )
        # Claims are not deduplicated: a repeated one is a further row without effect.
        self._store.insert_arrow(TABLE, data, deduplication_token="claim")
        rows = self._store.query(_LOOK, {"ids": list(names.values())})
        first = {str(row["batch_id"]): row["first_received_at_ns"] for row in rows}
        return {batch_id for batch_id, at_ns in received_at_ns.items() if first.get(names[batch_id]) == at_ns}
