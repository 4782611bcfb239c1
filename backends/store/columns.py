"""Records to columns: how each kind of column is written in ClickHouse and in Arrow, and the batch of a table.

Column by column, because that is how both sides keep them: 200-gap requests go through at the speed of a copy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Final

import numpy
import pyarrow

from contracts.errors import InvalidRecord
from contracts.money import MAX_PICO_USD
from contracts.names import ColumnKind, Table

Builder = Callable[[list[Any]], pyarrow.Array]


@dataclass(frozen=True, slots=True)
class StoreType:
    """What a column kind is in ClickHouse (as `system.columns` spells it) and in Arrow, and how values become it."""

    clickhouse: str
    arrow: pyarrow.DataType
    build: Builder


def _plain(clickhouse: str, arrow: pyarrow.DataType) -> StoreType:
    def build(values: list[Any]) -> pyarrow.Array:
        return pyarrow.array(values, arrow)

    return StoreType(clickhouse, arrow, build)


def _numbers(clickhouse: str, arrow: pyarrow.DataType, dtype: str) -> StoreType:
    """An array of numbers per row: flattened once, instead of one conversion per row."""
    of = pyarrow.list_(arrow)

    def build(values: list[Any]) -> pyarrow.Array:
        offsets = numpy.fromiter(accumulate(map(len, values), initial=0), dtype="int32", count=len(values) + 1)
        flat = numpy.fromiter(chain.from_iterable(values), dtype=dtype, count=int(offsets[-1]))
        return pyarrow.ListArray.from_arrays(pyarrow.array(offsets), pyarrow.array(flat, arrow), type=of)

    return StoreType(clickhouse, of, build)


def _build_packed(values: list[bytes]) -> pyarrow.Array:
    """Lists that came packed: one join, and no number becomes a Python integer."""
    lengths = numpy.fromiter(map(len, values), dtype="int64", count=len(values))
    if (lengths % _UINT32_BYTES).any():
        raise ValueError("the packed numbers end in the middle of one")
    offsets = numpy.zeros(len(values) + 1, dtype="int32")
    offsets[1:] = numpy.cumsum(lengths // _UINT32_BYTES)
    flat = numpy.frombuffer(b"".join(values), dtype="<u4")
    return pyarrow.ListArray.from_arrays(pyarrow.array(offsets), pyarrow.array(flat), type=_PACKED)


def _build_usd(values: list[int | None]) -> pyarrow.Array:
    """Integer pico-USD to Decimal(18, 12): the same integer, widened to 128 bits by hand."""
    narrow = pyarrow.array(values, pyarrow.int64())
    filled = narrow.fill_null(0).to_numpy(zero_copy_only=False)
    if len(filled) and max(int(filled.max()), -int(filled.min())) > MAX_PICO_USD:
        raise InvalidRecord(f"an amount exceeds {MAX_PICO_USD} pico-USD, the most that Decimal(18, 12) holds")
    wide = numpy.empty((len(filled), 2), dtype="<i8")
    wide[:, 0] = filled
    wide[:, 1] = filled >> 63  # the sign, repeated through the upper half
    validity = narrow.buffers()[0]
    return pyarrow.Array.from_buffers(_USD, len(filled), [validity, pyarrow.py_buffer(wide)], narrow.null_count)


def _build_times(values: list[int]) -> pyarrow.Array:
    return pyarrow.array(values, pyarrow.int64()).view(_TIME)


_UUID: Final = pyarrow.binary(16)
_PACKED: Final = pyarrow.list_(pyarrow.uint32())
_UINT32_BYTES: Final = 4
_USD: Final = pyarrow.decimal128(18, 12)
_TIME: Final = pyarrow.timestamp("ns", tz="UTC")
_LABELS: Final = pyarrow.map_(pyarrow.string(), pyarrow.string())

STORE_TYPES: Final[dict[ColumnKind, StoreType]] = {
    "uuid": _plain("UUID", _UUID),
    "bytes": _plain("String", pyarrow.binary()),
    "time_ns": StoreType("DateTime64(9, 'UTC')", _TIME, _build_times),
    "string": _plain("String", pyarrow.string()),
    "label": _plain("LowCardinality(String)", pyarrow.string()),
    "bool": _plain("Bool", pyarrow.bool_()),
    "bool?": _plain("Nullable(Bool)", pyarrow.bool_()),
    "u8": _plain("UInt8", pyarrow.uint8()),
    "u16": _plain("UInt16", pyarrow.uint16()),
    "u32": _plain("UInt32", pyarrow.uint32()),
    "u32?": _plain("Nullable(UInt32)", pyarrow.uint32()),
    "u64": _plain("UInt64", pyarrow.uint64()),
    "u64?": _plain("Nullable(UInt64)", pyarrow.uint64()),
    "f64?": _plain("Nullable(Float64)", pyarrow.float64()),
    "usd?": StoreType("Nullable(Decimal(18, 12))", _USD, _build_usd),
    "u32[]": _numbers("Array(UInt32)", pyarrow.uint32(), "u4"),
    "u32_packed[]": StoreType("Array(UInt32)", _PACKED, _build_packed),
    "u64[]": _numbers("Array(UInt64)", pyarrow.uint64(), "u8"),
    "u8[]": _numbers("Array(UInt8)", pyarrow.uint8(), "u1"),
    "bool[]": _plain("Array(Bool)", pyarrow.list_(pyarrow.bool_())),
    "uuid[]": _plain("Array(UUID)", pyarrow.list_(_UUID)),
    "label[]": _plain("Array(LowCardinality(String))", pyarrow.list_(pyarrow.string())),
    "labels": _plain("Map(LowCardinality(String), String)", _LABELS),
    "time_ns[]": _plain("Array(DateTime64(9, 'UTC'))", pyarrow.list_(_TIME)),
    "bytes[]": _plain("Array(String)", pyarrow.list_(pyarrow.binary())),
    "string[]": _plain("Array(String)", pyarrow.list_(pyarrow.string())),
    "labels[]": _plain("Array(Map(LowCardinality(String), String))", pyarrow.list_(_LABELS)),
}


def arrow_batch(table: Table[Any], records: Sequence[Any]) -> pyarrow.Table:
    """Turn records of one kind into the batch that `StoreClient.insert_arrow` takes.

    Raises InvalidRecord, naming the column, where a value does not fit it.
    """
    columns: dict[str, pyarrow.Array] = {}
    for column in table.columns:
        try:
            columns[column.name] = STORE_TYPES[column.kind].build([column.read(record) for record in records])
        except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise InvalidRecord(f"{table.name}.{column.name} cannot take a value as {column.kind}") from error
    return pyarrow.table(columns)
