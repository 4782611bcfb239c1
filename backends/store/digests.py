"""A table's row count and checksum, independent of parts, order and merges."""

from collections.abc import Mapping
from dataclasses import dataclass

from backends.store.client import StoreClient
from backends.store.tables import StoreTable, rows_of


@dataclass(frozen=True, slots=True)
class TableDigest:
    """The number of rows, and the sum of their hashes modulo 2^64."""

    rows: int
    checksum: int


def digest_of(
    client: StoreClient, table: StoreTable, rows: str = "", parameters: Mapping[str, object] | None = None
) -> TableDigest:
    """Return the digest of a table's rows, or of `rows` (SQL as from `rows_of`).

    A row is hashed as RowBinary, which differs for any two values, including NULL and 0. For aggregate states the final
    value is hashed, because the bytes of equal states depend on the order of merges.
    """
    hashed = ", ".join(
        f"toString(finalizeAggregation(`{name}`))" if kind.startswith("AggregateFunction") else f"`{name}`"
        for name, kind in table.columns.items()
    )
    (row,) = client.query(
        f"SELECT count() AS rows, sum(cityHash64(formatRow('RowBinary', {hashed}))) AS checksum "
        f"FROM {rows or rows_of(table)}",
        parameters,
    )
    return TableDigest(int(str(row["rows"])), int(str(row["checksum"])))
