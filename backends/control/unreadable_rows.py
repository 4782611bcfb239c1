"""Finds, lists, repairs and deletes rows whose values cannot be read, and leaves them out of query results.

A value that its column does not allow (a JSON text edited by hand, a role of a later version) fails when the driver
decodes a row, and with it the whole query. So a failed query is repeated without such rows, and these are recorded.
"""

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import (
    JSON,
    ColumnElement,
    DateTime,
    Select,
    Table,
    Text,
    and_,
    cast,
    delete,
    inspect,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy.engine import Connection, Result
from sqlalchemy.orm import Mapper, ORMExecuteState, Session, with_loader_criteria

from backends.control.changes import Author, begin_change, raise_keys_floor, read_revision
from backends.control.sound_rows import READS_ALL, UNSOUND
from contracts.control import Base
from contracts.control.base import ExactDecimal, UtcDateTime
from contracts.errors import Conflict, InvalidRequest, NotFound, RowUnreadable

_log = logging.getLogger(__name__)

_CHUNK_ROWS: Final = 500
_MAX_SHOWN: Final = 2000
_LEFT_OUT: Final = "unreadable_rows"  # key in a session's info
_NEVER_DELETED: Final = frozenset({"audit", "revision"})
_OF_KEYS: Final = frozenset({"api_keys", "former_secrets"})
Shapes = Mapping[type[Any], Callable[[Any], object]]  # by entity, the function that formats a row
_CURRENT: "Final[ContextVar[dict[Any, Any] | None]]" = ContextVar("unreadable_rows", default=None)


@dataclass(frozen=True, slots=True)
class UnreadableRow:
    """A row by table and id (parts separated by /), its invalid column and the fault. `stored` is that
    column's value.
    """

    table: str
    id: str
    column: str
    reason: str
    stored: str = ""


def leave_out_unreadable(state: ORMExecuteState) -> "Result[Any] | None":
    """Return a query's result without unreadable rows, and record these. For a session's `do_orm_execute`."""
    if not state.is_select or state.is_column_load or state.is_relationship_load:
        return None
    if state.execution_options.get(READS_ALL):
        return None
    try:
        return state.invoke_statement().freeze()()
    except UNSOUND:
        mappers = list(dict.fromkeys(state.all_mappers))
        found = {mapper: _unreadable(state.session.connection(), _table(mapper)) for mapper in mappers}
        if not any(found.values()):
            raise
    statement = state.statement
    for mapper, rows in found.items():
        if rows:
            _note(state, mapper, rows)
            criteria = ~_among(_table(mapper), list(rows))
            statement = statement.options(with_loader_criteria(mapper.class_, criteria, include_aliases=True))
    return state.invoke_statement(statement=statement).freeze()()


def begin_noting(session: Session) -> None:
    """Make `left_out` report this session's queries in this thread from now on."""
    _CURRENT.set(session.info)


def left_out() -> list[UnreadableRow]:
    """Return the rows that this thread's last session left out of its results."""
    info = _CURRENT.get()
    return [] if info is None else list(info.get(_LEFT_OUT, {}).values())


def refuse_missing(session: Session, error: NotFound) -> None:
    """Raise RowUnreadable if a row that a NotFound error is about exists but cannot be read."""
    for row in session.info.get(_LEFT_OUT, {}).values():
        if f"{row.table}/{row.id}" in error.rows:
            raise RowUnreadable(unreadable_sentence(row)) from error


def require_all_read(session: Session) -> None:
    """Raise RowUnreadable if a query of this session left out a row; for changes that must not miss any."""
    for row in session.info.get(_LEFT_OUT, {}).values():
        raise RowUnreadable(unreadable_sentence(row))


def unreadable_sentence(row: UnreadableRow) -> str:
    """Return an unreadable row's fault and its remedy as a sentence."""
    return (
        f"row {row.id!r} of {row.table} cannot be read: {row.column} {row.reason}; repair it with `tollkeeper rows "
        f"repair {row.table} {row.id}`, or delete it with `tollkeeper rows delete {row.table} {row.id}`"
    )


def find_rows(session: Session, shapes: Shapes) -> list[UnreadableRow]:
    """Search all tables for rows that cannot be read or formatted. Raises ControlUnavailable."""
    return [row for table in Base.metadata.sorted_tables for row in _faulty(session, table, shapes).values()]


def repair_row(
    session: Session, author: Author, table: str, row: str, values: Mapping[str, object], shapes: Shapes
) -> None:
    """Set values of an unreadable row so that it can be read; audited.

    Raises NotFound if there is no such row, or it can be read, and InvalidRequest on values that its columns do not
    allow or that do not repair it.
    """
    begin_change(session, author, "row.repair", f"{table}/{row}", {"columns": sorted(values)})
    key = _find(session, table, row, shapes)
    of = Base.metadata.tables[table]
    _raise_floor(session, table)
    named = {column.name: column for column in of.columns if not column.primary_key}
    unknown = sorted(set(values) - set(named))
    if unknown or not values:
        raise InvalidRequest(
            f"{unknown[0]!r} is not a column of {table} that may be set" if unknown else "give values to set",
            param="values",
        )
    stated = {name: _value(named[name], value) for name, value in values.items()}
    session.connection().execute(update(of).where(_among(of, [key])).values(stated))
    session.expire_all()
    still = _faulty(session, of, shapes).get(key)
    if still is not None:
        raise InvalidRequest(f"the row cannot be read yet: {still.column} {still.reason}", param="values")


def delete_row(session: Session, author: Author, table: str, row: str, shapes: Shapes) -> None:
    """Delete an unreadable row; audited.

    Raises NotFound if there is no such row, or it can be read, and Conflict while another row refers to it.
    """
    begin_change(session, author, "row.delete", f"{table}/{row}")
    key = _find(session, table, row, shapes)
    of = Base.metadata.tables[table]
    if table in _NEVER_DELETED:
        raise Conflict(f"rows of {table} are never deleted")
    _raise_floor(session, table)
    session.connection().execute(delete(of).where(_among(of, [key])))


def _find(session: Session, table: str, row: str, shapes: Shapes) -> tuple[Any, ...]:
    of = Base.metadata.tables.get(table)
    if of is None:
        raise InvalidRequest(f"there is no table {table!r}", param="table")
    for key, found in _faulty(session, of, shapes).items():
        if found.id == row:
            return key
    raise NotFound(f"{table} has no row {row!r} that cannot be read")


def _raise_floor(session: Session, table: str) -> None:
    if table in _OF_KEYS:  # gateways find changed keys by revision, which a repair does not set on them
        raise_keys_floor(session, read_revision(session))


def _faulty(session: Session, table: Table, shapes: Shapes) -> dict[tuple[Any, ...], UnreadableRow]:
    """Return a table's rows that cannot be read or cannot be formatted."""
    found = _unreadable(session.connection(), table)
    mapper, shape = next(
        ((inspect(of), how) for of, how in shapes.items() if inspect(of).local_table is table), (None, None)
    )
    if mapper is None or shape is None:
        return found
    for row in session.scalars(select(mapper.class_)):
        try:
            shape(row)
        except UNSOUND as error:
            key = tuple(mapper.primary_key_from_instance(row))
            found[key] = UnreadableRow(table.name, row_id(row), "", f"cannot be shown: {shown_reason(error)}")
    return found


def row_id(row: object) -> str:
    """Return a row's id as in lists of unreadable rows: its key's parts separated by /."""
    return "/".join(str(part) for part in inspect(type(row)).primary_key_from_instance(row))


def shown_reason(error: Exception) -> str:
    """Return the fault of a row that was read, without its values."""
    found = getattr(error, "errors", None)
    if callable(found):  # a pydantic error
        first = found(include_url=False, include_input=False, include_context=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return f"it is not of the form that this version knows ({type(error).__name__})"


def _unreadable(
    connection: Connection, table: Table, keys: "list[tuple[Any, ...]] | None" = None
) -> dict[tuple[Any, ...], UnreadableRow]:
    """Return a table's unreadable rows by key, searching in pieces, and row by row in a piece that fails."""
    named = list(table.primary_key.columns)
    if keys is None:
        keys = [tuple(row) for row in connection.execute(select(*named).order_by(*named))]
    found = {}
    for start in range(0, len(keys), _CHUNK_ROWS):
        chunk = keys[start : start + _CHUNK_ROWS]
        if _is_readable(connection, select(table).where(_among(table, chunk))):
            continue
        for key in chunk:
            if not _is_readable(connection, select(table).where(_among(table, [key]))):
                found[key] = _described(connection, table, key)
    return found


def _is_readable(connection: Connection, wanted: Any) -> bool:
    try:
        connection.execute(wanted).all()
    except UNSOUND:
        return False
    return True


def _described(connection: Connection, table: Table, key: tuple[Any, ...]) -> UnreadableRow:
    row = "/".join(str(part) for part in key)
    for column in table.columns:
        where = _among(table, [key])
        try:
            connection.execute(select(column).where(where)).all()
        except UNSOUND as error:
            stored = ""
            if isinstance(column.type, JSON | DateTime | UtcDateTime | ExactDecimal):  # other columns may be digests
                raw = connection.execute(select(cast(type_coerce(column, Text), Text)).where(where)).scalar()
                stored = str(raw)[:_MAX_SHOWN]
            return UnreadableRow(table.name, row, column.name, f"is {_wrong(column.type, error)}", stored)
    return UnreadableRow(table.name, row, "", "cannot be read")


def _wrong(kind: object, error: Exception) -> str:
    wanted = {
        JSON: "not JSON",
        UtcDateTime: "not a time",
        DateTime: "not a time",
        ExactDecimal: "not a decimal number",
    }
    return next(
        (what for of, what in wanted.items() if isinstance(kind, of)),
        f"not what its column holds ({type(error).__name__})",
    )


def _among(table: Table, keys: "list[tuple[Any, ...]]") -> ColumnElement[bool]:
    """Return the condition that a row has one of these keys, split up because databases limit the values in a
    statement.
    """
    named = list(table.primary_key.columns)
    if len(named) == 1:
        return or_(
            *(
                named[0].in_([key[0] for key in keys[start : start + _CHUNK_ROWS]])
                for start in range(0, len(keys), _CHUNK_ROWS)
            )
        )
    return or_(*(and_(*(column == part for column, part in zip(named, key, strict=True))) for key in keys))


def _note(state: ORMExecuteState, mapper: Mapper[Any], rows: Mapping[tuple[Any, ...], UnreadableRow]) -> None:
    """Record the unreadable rows that the query selects, so that a caller is told only about rows that it may see."""
    if not isinstance(state.statement, Select):
        return
    noted = state.session.info.setdefault(_LEFT_OUT, {})
    table = _table(mapper)
    named = list(table.primary_key.columns)
    asked = state.statement.with_only_columns(*named, maintain_column_froms=True)
    asked = asked.where(_among(table, list(rows))).order_by(None).limit(None)
    found = state.session.execute(asked, state.parameters, execution_options={READS_ALL: True})
    for key in (tuple(row) for row in found):
        if (table.name, key) not in noted:
            noted[table.name, key] = rows[key]
            _log.warning("row_unreadable", extra={"table": table.name, "row": rows[key].id, "reason": rows[key].reason})


def _table(mapper: Mapper[Any]) -> Table:
    table = mapper.local_table
    assert isinstance(table, Table)  # every entity has one
    return table


def _value(column: Any, value: object) -> object:
    """Convert a JSON value for a column. Raises InvalidRequest."""
    try:
        if value is None and column.nullable:
            return None
        if isinstance(column.type, UtcDateTime):
            return _moment(value)
        if isinstance(column.type, ExactDecimal) and isinstance(value, str | int) and not isinstance(value, bool):
            return Decimal(value)
        kind: Any = dict if isinstance(column.type, JSON) else column.type.python_type
        if isinstance(value, str) and issubclass(kind, StrEnum):
            return kind(value)
        is_list = isinstance(column.type, JSON) and isinstance(value, list)
        if type(value) is not kind and not is_list:
            raise ValueError(f"it takes {kind.__name__}")
    except (ValueError, InvalidOperation) as error:
        raise InvalidRequest(
            f"{column.name} does not take this value: {error}", param=f"values.{column.name}"
        ) from error
    return value


def _moment(value: object) -> datetime:
    moment = datetime.fromisoformat(str(value))
    if moment.utcoffset() is None:
        raise ValueError("a moment has a time zone, such as 2026-11-01T00:00:00+00:00")
    return moment
