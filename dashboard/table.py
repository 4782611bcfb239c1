"""A table as pages show and export it: named columns of plain values, `None` if one is missing."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

from dashboard.arrow_column import arrow_column, is_missing

if TYPE_CHECKING:
    import pyarrow


class Table:
    """Columns of equal length, in order. Made of rows (mappings, or sequences with `columns`), or of columns by name.

    Values are numbers, text, moments, booleans, `None`, and lists of these. NaN is a missing value, too.
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
        """Return a table as it is, and make one of a pandas data frame, which other programs may have."""
        return data if isinstance(data, cls) else cls(data.to_dict("list"))

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return list(self._columns)

    @property
    def empty(self) -> bool:
        """Return whether there is no row."""
        return len(self) == 0

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows, missing values as `None`."""
        for row in zip(*self._columns.values(), strict=True):
            yield tuple(None if is_missing(value) else value for value in row)

    def without(self, *names: str) -> "Table":
        """Return the table without some columns."""
        return Table({name: values for name, values in self._columns.items() if name not in names})

    def as_arrow(self) -> "pyarrow.Table":
        """Return what Streamlit sends to the browser. A column of mixed types is text."""
        import pyarrow as pa  # here, for it takes long to load, and a command that draws nothing needs none of it

        columns = [arrow_column(values) for values in self._columns.values()]
        return pa.Table.from_arrays(columns, names=self.columns)

    def as_csv(self) -> str:
        """Write it as CSV (RFC 4180); what is missing is empty."""
        out = io.StringIO(newline="")
        writer = csv.writer(out)  # with another line end, a carriage return within text would not be quoted
        writer.writerow(self._columns)
        writer.writerows(self.rows())
        return out.getvalue()
