"""A column of the store: its name, its kind and its place on a record. The columns are listed in `names.py`."""

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

ColumnKind = Literal[
    "uuid",  # 16 bytes
    "bytes",  # unchanged, may be empty
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
    "i32",
    "f64?",
    "usd?",  # Decimal(18, 12), read as integer pico-USD
    "u32[]",
    "u32_packed[]",  # bytes of little-endian UInt32: gaps
    "u64[]",
    "f64[]",
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
    """One column of a table filled from records: its name, its kind, and the place of its value on a record.

    `path` is a field ("status") or a field of a part ("who.tenant"); `absent` is the value if a record has no such
    part.
    """

    name: str
    kind: ColumnKind
    path: str
    absent: Any = None

    def read(self, record: R) -> Any:
        """Return the column's value on one record."""
        part, _, field = self.path.rpartition(".")
        owner = getattr(record, part) if part else record
        return self.absent if owner is None else getattr(owner, field)


@dataclass(frozen=True, slots=True)
class Table(Generic[R]):
    """A table filled from one kind of record."""

    name: str
    columns: tuple[Column[R], ...]


def fields(kind: ColumnKind, *names: str) -> tuple[Column[Any], ...]:
    """Return columns that are named like the record's own fields."""
    return tuple(Column(name, kind, name) for name in names)
