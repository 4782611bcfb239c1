"""Converts records to Arrow columns, with each column kind's types in ClickHouse and in Arrow.

Works column by column, because both sides store columns: a record's fields are copied at once, and a column with one
value in all rows is written once, so that requests with 200 inter-token gaps are converted at copying speed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Final

import numpy
import pyarrow
from msgspec.structs import astuple

from contracts.errors import InvalidRecord
from contracts.pricing.money import MAX_PICO_USD
from contracts.recording.names import ColumnKind, Table

Values = Sequence[Any]
Builder = Callable[[Values], pyarrow.Array]


@dataclass(frozen=True, slots=True)
class StoreType:
    """A column kind's type in ClickHouse (as in `system.columns`) and in Arrow, and the conversion of values."""

    clickhouse: str
    arrow: pyarrow.DataType
    build: Builder


def _plain(clickhouse: str, arrow: pyarrow.DataType) -> StoreType:
    def build(values: Values) -> pyarrow.Array:
        if _is_one_value(values):
            return pyarrow.repeat(pyarrow.scalar(values[0], arrow), len(values))
        return pyarrow.array(values, arrow)

    return StoreType(clickhouse, arrow, build)


def _is_one_value(values: Values) -> bool:
    """Return whether all rows have the same object, such as a default or an interned value."""
    return len(values) > 1 and values[0] is values[-1] and values.count(values[0]) == len(values)


def _offsets(values: Values) -> Any:
    return numpy.fromiter(accumulate(map(len, values), initial=0), dtype="int32", count=len(values) + 1)


def _lists(clickhouse: str, arrow: pyarrow.DataType, build_items: Builder) -> StoreType:
    """Return the type of an array per row, whose items are converted together."""
    of = pyarrow.list_(arrow)

    def build(values: Values) -> pyarrow.Array:
        items = build_items(list(chain.from_iterable(values)))
        return pyarrow.ListArray.from_arrays(pyarrow.array(_offsets(values)), items, type=of)

    return StoreType(clickhouse, of, build)


def _numbers(clickhouse: str, arrow: pyarrow.DataType, dtype: str) -> StoreType:
    def build_items(items: Values) -> pyarrow.Array:
        return pyarrow.array(numpy.fromiter(items, dtype=dtype, count=len(items)), arrow)

    return _lists(clickhouse, arrow, build_items)


def _build_packed(values: Values) -> pyarrow.Array:
    """Build arrays from packed numbers by one join, without Python integers."""
    lengths = numpy.fromiter(map(len, values), dtype="int64", count=len(values))
    if (lengths % _UINT32_BYTES).any():
        raise ValueError("the packed numbers end in the middle of one")
    offsets = numpy.zeros(len(values) + 1, dtype="int32")
    offsets[1:] = numpy.cumsum(lengths // _UINT32_BYTES)
    flat = numpy.frombuffer(b"".join(values), dtype="<u4")
    return pyarrow.ListArray.from_arrays(pyarrow.array(offsets), pyarrow.array(flat), type=_PACKED)


def _build_labels(values: Values) -> pyarrow.Array:
    """Build a map per row. If all rows share one map, as a request's spans share their resource, it is copied."""
    if len(values) > 1 and all(value is values[0] for value in values):
        return _build_labels(values[:1]).take(pyarrow.array(numpy.zeros(len(values), dtype="int32")))
    keys = pyarrow.array(list(chain.from_iterable(values)), pyarrow.string())
    texts = pyarrow.array(list(chain.from_iterable(map(dict.values, values))), pyarrow.string())
    return pyarrow.MapArray.from_arrays(pyarrow.array(_offsets(values)), keys, texts)


def _build_usd(values: Values) -> pyarrow.Array:
    """Convert integer pico-USD to Decimal(18, 12): the same integer, extended to 128 bits."""
    narrow = pyarrow.array(values, pyarrow.int64())
    filled = narrow.fill_null(0).to_numpy(zero_copy_only=False)
    if len(filled) and max(int(filled.max()), -int(filled.min())) > MAX_PICO_USD:
        raise InvalidRecord(f"an amount exceeds {MAX_PICO_USD} pico-USD, the most that Decimal(18, 12) holds")
    wide = numpy.empty((len(filled), 2), dtype="<i8")
    wide[:, 0] = filled
    wide[:, 1] = filled >> 63  # the sign, repeated through the upper half
    validity = narrow.buffers()[0]
    return pyarrow.Array.from_buffers(_USD, len(filled), [validity, pyarrow.py_buffer(wide)], narrow.null_count)


def _build_times(values: Values) -> pyarrow.Array:
    return pyarrow.array(values, pyarrow.int64()).view(_TIME)


_UUID: Final = pyarrow.binary(16)
_PACKED: Final = pyarrow.list_(pyarrow.uint32())
_UINT32_BYTES: Final = 4
_TRANSPOSED_TOGETHER: Final = 128  # rows whose fields fit a CPU core's cache
_USD: Final = pyarrow.decimal128(18, 12)
_TIME: Final = pyarrow.timestamp("ns", tz="UTC")
_LABELS: Final = pyarrow.map_(pyarrow.string(), pyarrow.string())


def _array_of(arrow: pyarrow.DataType) -> Builder:
    return lambda values: pyarrow.array(values, arrow)


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
    "i32": _plain("Int32", pyarrow.int32()),
    "f64?": _plain("Nullable(Float64)", pyarrow.float64()),
    "usd?": StoreType("Nullable(Decimal(18, 12))", _USD, _build_usd),
    "u32[]": _numbers("Array(UInt32)", pyarrow.uint32(), "u4"),
    "u32_packed[]": StoreType("Array(UInt32)", _PACKED, _build_packed),
    "u64[]": _numbers("Array(UInt64)", pyarrow.uint64(), "u8"),
    "u8[]": _numbers("Array(UInt8)", pyarrow.uint8(), "u1"),
    "f64[]": _numbers("Array(Float64)", pyarrow.float64(), "f8"),
    "bool[]": _lists("Array(Bool)", pyarrow.bool_(), _array_of(pyarrow.bool_())),
    "uuid[]": _lists("Array(UUID)", _UUID, _array_of(_UUID)),
    "label[]": _lists("Array(LowCardinality(String))", pyarrow.string(), _array_of(pyarrow.string())),
    "labels": StoreType("Map(LowCardinality(String), String)", _LABELS, _build_labels),
    "time_ns[]": _lists("Array(DateTime64(9, 'UTC'))", _TIME, _build_times),
    "bytes[]": _lists("Array(String)", pyarrow.binary(), _array_of(pyarrow.binary())),
    "string[]": _lists("Array(String)", pyarrow.string(), _array_of(pyarrow.string())),
    "labels[]": _lists("Array(Map(LowCardinality(String), String))", _LABELS, _build_labels),
}


def arrow_batch(table: Table[Any], records: Sequence[Any]) -> pyarrow.Table:
    """Return the batch for `StoreClient.insert_arrow` from records of one kind.

    Raises InvalidRecord with the column whose value does not fit.
    """
    values = _taken_apart(table, records)
    columns: dict[str, pyarrow.Array] = {}
    for column in table.columns:
        try:
            columns[column.name] = STORE_TYPES[column.kind].build(values[column.path])
        except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise InvalidRecord(f"{table.name}.{column.name} cannot take a value as {column.kind}") from error
    return pyarrow.table(columns)


def _taken_apart(table: Table[Any], records: Sequence[Any]) -> Mapping[str, Values]:
    """Return every column's values by its path; a struct's fields are copied together."""
    if not records:
        return {column.path: () for column in table.columns}
    values = _fields_of(records, records[0].__struct_fields__)
    absent: dict[str, dict[str, Any]] = {}
    for column in table.columns:
        part, _, field = column.path.rpartition(".")
        if part:
            absent.setdefault(part, {})[field] = column.absent
    for part, defaults in absent.items():
        found = _parts_taken_apart(values[part], defaults)
        values.update({f"{part}.{field}": column for field, column in found.items()})
    return values


def _parts_taken_apart(values: Values, defaults: Mapping[str, Any]) -> dict[str, Values]:
    """Return the columns of one part of all records, which some records may lack."""
    some = next((value for value in values if value is not None), None)
    if some is None:
        return {field: (absent,) * len(values) for field, absent in defaults.items()}
    nothing = tuple(map(defaults.get, some.__struct_fields__))
    return _fields_of(values, some.__struct_fields__, nothing)


def _fields_of(structs: Sequence[Any], names: Sequence[str], nothing: tuple[Any, ...] = ()) -> dict[str, Values]:
    """Transpose structs in chunks that fit a CPU's cache."""
    columns: list[list[Any]] = [[] for _ in names]
    for start in range(0, len(structs), _TRANSPOSED_TOGETHER):
        some = structs[start : start + _TRANSPOSED_TOGETHER]
        rows = (nothing if struct is None else astuple(struct) for struct in some) if nothing else map(astuple, some)
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            column += values
    return dict(zip(names, columns, strict=True))
