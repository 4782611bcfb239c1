"""A column of the store: its name, its kind and the way to read it off a record. Which there are is in `names.py`."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar

ColumnKind = Literal[
    "uuid",  # 16 bytes
    "bytes",  # as they are, may be empty
    "time_ns",  # DateTime64(9, 'UTC')
    "string",
    "label",  # LowCardinality(String)
    "bool",
    "bool?",
    "u8",
    "u16",
    "u32",
    "u32?",
    "u64",
    "u64?",
    "f64?",
    "usd?",  # Decimal(18, 12), read as integer pico-USD
    "u32[]",
    "u32_packed[]",  # bytes of little-endian UInt32: gaps
    "u64[]",
    "u8[]",
    "bool[]",
    "uuid[]",
    "label[]",
    "labels",  # Map(LowCardinality(String), String)
    "time_ns[]",
    "bytes[]",
    "string[]",
    "labels[]",
]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One column of a table fed by records: its name, its kind, and how to read it off a record."""

    name: str
    kind: ColumnKind
    read: Callable[[R], Any]


@dataclass(frozen=True, slots=True)
class Table(Generic[R]):
    """A table fed by one kind of record."""

    name: str
    columns: tuple[Column[R], ...]


def fields(kind: ColumnKind, *names: str) -> tuple[Column[Any], ...]:
    """Give the columns that have the name of the record's own field."""
    return tuple(Column(name, kind, field_reader(name)) for name in names)


# attrgetter, not a function of our own: a batch reads every column of every record, at a third of the cost.


def field_reader(name: str) -> Callable[[Any], Any]:
    """Give what reads a field off a record."""
    return attrgetter(name)
