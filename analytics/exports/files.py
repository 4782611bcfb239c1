"""Writes rows to CSV files (with exact values) and Parquet files (with types)."""

import csv
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from analytics.exports.focus_columns import COLUMNS, FLAG, NUMBER, TIME, Row
from contracts.pricing.spreadsheets import harmless_cell


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write rows as CSV (RFC 4180): null as empty, times in ISO 8601 UTC, numbers without exponents.

    Text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow([_text(harmless_cell(row[name])) for name in COLUMNS])


def write_parquet(rows: Sequence[Row], path: Path) -> None:
    """Write rows as Parquet; numbers are decimals with twelve decimal places."""
    import pyarrow as pa  # imported here: it loads slowly
    import pyarrow.parquet as pq

    types: Mapping[str, Any] = {
        NUMBER: pa.decimal128(38, 12),
        TIME: pa.timestamp("us", tz="UTC"),
        FLAG: pa.bool_(),
    }
    schema = pa.schema([(name, types.get(kind, pa.string())) for name, (kind, _) in COLUMNS.items()])
    columns = [pa.array([_plain(row[name]) for row in rows], type=schema.field(name).type) for name in COLUMNS]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path)


def _plain(value: object) -> object:
    return value.quantize(Decimal("1e-12")) if isinstance(value, Decimal) else value


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return format(value, "f") if isinstance(value, Decimal) else str(value)
