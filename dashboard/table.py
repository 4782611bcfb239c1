"""A table that pages show and export: named columns of plain values; a missing value is `None`."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

from dashboard.arrow_column import arrow_column, is_missing

if TYPE_CHECKING:
    import pyarrow


class Table:
    """Columns of equal length, in order. Built from rows (mappings, or sequences with `columns`) or from columns by
    name.

    Values are numbers, text, times, booleans, `None`, and lists of these. NaN also counts as missing.
    """

    __slots__ = ("_columns",)

    def __init__(
        self,
        data: Iterable[Mapping[str, Any]] | Iterable[Sequence[Any]] | Mapping[str, Iterable[Any]],
        columns: Sequence[str] = (),
    ) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in columns}
        if isinstance(data, Mapping):
            self._columns |= {name: list(values) for name, values in data.items()}
            return
        for place, row in enumerate(data):
            named = cast(Mapping[str, Any], row if isinstance(row, Mapping) else dict(zip(columns, row, strict=True)))
            for name in named:
                if name not in self._columns:
                    self._columns[name] = [None] * place
            for name, values in self._columns.items():
                values.append(named.get(name))

    @classmethod
    def of(cls, data: Any) -> Self:
        """Convert a pandas data frame to a table; return a table unchanged."""
        return data if isinstance(data, cls) else cls(data.to_dict("list"))

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return list(self._columns)

    @property
    def empty(self) -> bool:
        """Return whether the table has no rows."""
        return len(self) == 0

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows as tuples, with `None` for missing values."""
        for row in zip(*self._columns.values(), strict=True):
            yield tuple(None if is_missing(value) else value for value in row)

    def without(self, *names: str) -> "Table":
        """Return the table without some columns."""
        return Table({name: values for name, values in self._columns.items() if name not in names})

    def as_arrow(self) -> "pyarrow.Table":
        """Convert to an Arrow table, which Streamlit sends to the browser. A column of mixed types becomes text."""
        import pyarrow as pa  # imported here: it loads slowly, and most commands do not need it

        columns = [arrow_column(values) for values in self._columns.values()]
        return pa.Table.from_arrays(columns, names=self.columns)

    def as_csv(self) -> str:
        """Return the table as CSV (RFC 4180); missing values are empty."""
        out = io.StringIO(newline="")
        writer = csv.writer(out)  # with another line terminator, csv would not quote a carriage return within text
        writer.writerow(self._columns)
        writer.writerows(self.rows())
        return out.getvalue()
