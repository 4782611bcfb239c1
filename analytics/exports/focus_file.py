"""Validates a FOCUS file on disk: columns, the format of every value, and the rules."""

import csv
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Final

from analytics.exports.focus_columns import COLUMNS, FLAG, NUMBER, TEXT, TIME, Row, Value
from analytics.exports.focus_rules import focus_faults
from contracts.errors import InvalidRequest

# FOCUS's numeric format: an optional minus, digits, one point, E notation; no plus sign, no separators, no units.
_NUMBER: Final = re.compile(r"^-?\d+(?:\.\d+)?(?:[eE]-?\d+)?$")
_TIME: Final = re.compile(r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$")
_MOST_FAULTS: Final = 1_000


def file_faults(path: Path) -> tuple[int, list[str]]:
    """Check a .csv or .parquet file: columns, format of every value, all rules. Return the number of rows, and the
    errors.

    At most 1,000 format errors are returned. Raises InvalidRequest if the file is not a table.
    """
    try:
        if path.suffix == ".csv":
            names, rows, faults = _read_csv(path)
        elif path.suffix == ".parquet":
            names, rows, faults = _read_parquet(path)
        else:
            raise InvalidRequest(f"{path.name!r} ends in neither .csv nor .parquet", param="file")
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path} cannot be read as a table: {type(error).__name__}", param="file") from error
    return len(rows), [*_column_faults(names), *faults, *focus_faults(rows)]


def _column_faults(names: list[str]) -> list[str]:
    known = [name for name in COLUMNS if not name.startswith("x_")]
    faults = [f"column {name} is missing" for name in known if name not in names]
    faults += [f"column {name} stands twice" for name in sorted({name for name in names if names.count(name) > 1})]
    first_own = next((place for place, name in enumerate(names) if name.startswith("x_")), len(names))
    late = [name for name in names[first_own:] if not name.startswith("x_")]
    return faults + [f"column {name} stands behind columns that begin with x_" for name in late]


def _read_csv(path: Path) -> tuple[list[str], list[Row], list[str]]:
    faults: list[str] = []
    rows: list[Row] = []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file, strict=True)
        names = next(reader, [])
        for number, cells in enumerate(reader, 1):
            if len(cells) != len(names):
                faults.append(f"row {number}: has {len(cells)} values for {len(names)} columns")
                continue
            row: Row = {}
            for name, text in zip(names, cells, strict=True):
                row[name], fault = _value(COLUMNS.get(name, (TEXT, True))[0], text)
                if fault and len(faults) < _MOST_FAULTS:
                    faults.append(f"row {number}: {name} {text!r} {fault}")
            rows.append(row)
    return names, rows, faults


def _value(kind: str, text: str) -> tuple[Value, str]:
    """Parse a value by its column's type; return it and "", or the text and an error."""
    if not text:
        return None, ""
    if kind == NUMBER:
        return (Decimal(text), "") if _NUMBER.match(text) else (text, "is not in FOCUS's numeric format")
    if kind == TIME:
        if not _TIME.match(text):
            return text, "is not in FOCUS's time format, such as 2026-11-01T00:00:00Z"
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC), ""
    if kind == FLAG:
        return (text == "true", "") if text in ("true", "false") else (text, "is neither true nor false")
    return text, ""


def _read_parquet(path: Path) -> tuple[list[str], list[Row], list[str]]:
    import pyarrow as pa  # imported here: a CSV check does not need it
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(f"{path} is no Parquet file", param="file") from error
    faults = [
        f"column {field.name} is of type {field.type}, and {COLUMNS[field.name][0]} is expected"
        for field in table.schema
        if field.name in COLUMNS and not _is_of(COLUMNS[field.name][0], field.type)
    ]
    return table.column_names, table.to_pylist(), faults


def _is_of(kind: str, found: object) -> bool:
    import pyarrow as pa

    if kind == NUMBER:
        return bool(pa.types.is_decimal(found))
    if kind == TIME:
        return bool(pa.types.is_timestamp(found)) and getattr(found, "tz", None) == "UTC"
    if kind == FLAG:
        return bool(pa.types.is_boolean(found))
    return bool(pa.types.is_string(found))
