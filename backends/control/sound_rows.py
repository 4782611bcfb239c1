"""Reads rows of the control database, leaving out unreadable ones, so that one bad row does not delay a revocation."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from sqlalchemy import Select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from contracts.errors import ConfigurationError

Built = TypeVar("Built")
AnySelect: TypeAlias = Select[*tuple[Any, ...]]
Name: TypeAlias = tuple[InstrumentedAttribute[str], ...]

# Errors of reading an invalid value: JSON, decimals, times, missing fields, deeply nested JSON.
UNSOUND: Final = (
    *(ValueError, TypeError, ArithmeticError, LookupError, AttributeError, ConfigurationError),
    RecursionError,
)
READS_ALL: Final = "reads_all_rows"  # execution option: an unreadable row fails the query instead of being left out
_CHUNK_ROWS: Final = 500
_ALL: Final = {READS_ALL: True}


class SoundRows:
    """Reads rows and builds objects from them; unreadable ones are left out and described in `faults`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.faults: list[str] = []
        self.faults_by_name: dict[str, str] = {}

    def build(self, what: str, wanted: AnySelect, name: Name, build: Callable[[Any], Built]) -> list[Built]:
        """Build one object from each row; `name` are the columns that identify a row.

        All rows are fetched at once. Only if the database driver cannot decode one, they are fetched again in pieces,
        to find it.
        """
        built: list[Built] = []
        for row in self._rows(what, wanted.add_columns(*name), name):
            values, named = row[: -len(name)], row[-len(name) :]
            try:
                built.append(build(values))
            except UNSOUND as error:
                self._leave_out(what, named, error)
        return built

    def _rows(self, what: str, wanted: AnySelect, name: Name) -> list[Any]:
        try:
            return list(self._session.execute(wanted, execution_options=_ALL))
        except UNSOUND:
            self._session.expunge_all()  # removes partly loaded objects
        names = [tuple(row) for row in self._session.execute(wanted.with_only_columns(*name).order_by(*name))]
        rows: list[Any] = []
        for start in range(0, len(names), _CHUNK_ROWS):
            chunk = names[start : start + _CHUNK_ROWS]
            within = tuple_(*name).between(tuple_(*chunk[0]), tuple_(*chunk[-1]))
            try:
                rows += list(self._session.execute(wanted.where(within), execution_options=_ALL))
            except UNSOUND:
                rows += self._each(what, wanted, name, chunk)
        return rows

    def _each(self, what: str, wanted: AnySelect, name: Name, chunk: Sequence[tuple[str, ...]]) -> list[Any]:
        rows: list[Any] = []
        for named in chunk:
            try:
                rows += list(
                    self._session.execute(wanted.where(tuple_(*name) == tuple_(*named)), execution_options=_ALL)
                )
            except UNSOUND as error:
                self._leave_out(what, named, error)
        return rows

    def _leave_out(self, what: str, named: Sequence[str], error: Exception) -> None:
        why = error.message if isinstance(error, ConfigurationError) else f"unreadable ({type(error).__name__})"
        fault = f"{what} {'/'.join(named)!r} is left out: {why}"
        self.faults.append(fault)
        self.faults_by_name["/".join(named)] = fault
