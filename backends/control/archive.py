"""Archives the control database as files: one per table, one JSON line per row, the same for SQLite and PostgreSQL.

Tables are read as the database describes them, not as the code declares them: a backup of an older revision is restored
at that revision, and migrated afterwards.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import DateTime, Integer, MetaData, Row, Table, insert, select, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from backends.control.database import ControlDatabase
from backends.control.sound_rows import UNSOUND
from contracts.errors import ConfigurationError, TollkeeperError

_HISTORY: Final = "alembic_version"
_LOADED_AT_ONCE: Final = 1000


class ControlCopyDiffers(TollkeeperError):
    """A restored control database differs from the backup; the transaction was rolled back."""

    code = "copy_differs"


class ArchivedRows(msgspec.Struct, frozen=True):
    """The number of a table's rows, and the SHA-256 of their lines in sorted order."""

    rows: int
    checksum: str


class ArchivedControl(msgspec.Struct, frozen=True):
    """The content of an archive: the database at one schema revision."""

    revision: str
    tables: dict[str, ArchivedRows]


def write_control(database: ControlDatabase, directory: Path, say: Callable[[str], None]) -> ArchivedControl:
    """Write every table into a directory, all as of one time, while others write; progress lines go to `say`.

    Raises ControlUnavailable, and ConfigurationError if it was never migrated or the directory cannot be written.
    """
    revision = database.revision()
    if revision is None:
        raise ConfigurationError(
            f"the control database {database.shown_url} has no tables; there is nothing to back up"
        )
    tables: dict[str, ArchivedRows] = {}
    for name, lines in _all_lines(database):
        try:
            descriptor = os.open(directory / f"{name}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.writelines(f"{line}\n" for line in lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ConfigurationError(
                f"{directory} cannot be written ({error.strerror}); choose another place"
            ) from error
        tables[name] = _digest(lines)
        if lines:
            say(f"control: {name}: {len(lines)} rows")
    return ArchivedControl(revision, tables)


def digest_control(database: ControlDatabase) -> dict[str, ArchivedRows]:
    """Return the row count and checksum of every table, all as of one time."""
    return {name: _digest(lines) for name, lines in _all_lines(database)}


def load_control(
    database: ControlDatabase, directory: Path, archived: ArchivedControl, say: Callable[[str], None]
) -> None:
    """Fill an empty database at the archived revision, in one transaction, and verify that each table is equal.

    A row that a migration creates (the revision counter) is replaced. Raises ControlCopyDiffers, and ConfigurationError
    if the database contains more than that, or is at another revision.
    """
    if database.revision() != archived.revision:
        raise ConfigurationError(
            f"the control database {database.shown_url} is at revision {database.revision()}, "
            f"the backup at {archived.revision}"
        )
    try:
        with database.engine.begin() as connection:
            tables = _tables(connection)
            _require_empty(connection, tables, database.shown_url)
            for table in reversed(tables):
                connection.execute(table.delete())
            for table in tables:
                _load(connection, table, directory / f"{table.name}.jsonl")
            found = {table.name: _digest(_lines(connection, table)) for table in tables}
            for name, wanted in archived.tables.items():
                if found.get(name) != wanted:
                    raise ControlCopyDiffers(f"the copy of {name} is not what was backed up; nothing of it was kept")
                if wanted.rows:
                    say(f"control: {name}: {wanted.rows} rows, checksum {wanted.checksum[:16]} as backed up")
    except DBAPIError as error:
        raise ConfigurationError(
            f"the control database {database.shown_url} refused the backup's rows ({type(error.orig).__name__})"
        ) from error


def _all_lines(database: ControlDatabase) -> Iterator[tuple[str, list[str]]]:
    """Yield every table's rows as lines, all as of one time by the database's transaction isolation."""
    is_postgres = database.url.get_backend_name() == "postgresql"
    engine = database.engine.execution_options(isolation_level="REPEATABLE READ") if is_postgres else database.engine
    with engine.connect() as connection, connection.begin():
        for table in _tables(connection):
            yield table.name, _lines(connection, table)


def _tables(connection: Connection) -> list[Table]:
    """Return the tables, referenced ones first."""
    found = MetaData()
    found.reflect(connection)
    return [table for table in found.sorted_tables if table.name != _HISTORY]


def _lines(connection: Connection, table: Table) -> list[str]:
    try:
        return sorted(_line(row) for row in connection.execute(select(table)))
    except UNSOUND as error:
        raise ConfigurationError(
            f"a row of {table.name} in the control database cannot be read ({type(error).__name__}); repair or delete "
            "it: `tollkeeper rows list`"
        ) from error


def _line(row: Row[Any]) -> str:
    return json.dumps({name: _plain(value) for name, value in row._mapping.items()}, sort_keys=True)


def _plain(value: object) -> object:
    if isinstance(value, datetime):  # SQLite returns UTC times without a zone
        return (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    return value


def _digest(lines: list[str]) -> ArchivedRows:
    return ArchivedRows(len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest())


def _load(connection: Connection, table: Table, path: Path) -> None:
    try:
        rows = [_restored(table, json.loads(line)) for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read ({type(error).__name__}): the backup is damaged") from error
    numbers = [column.name for column in table.primary_key.columns if isinstance(column.type, Integer)]
    rows.sort(key=lambda row: [row[name] for name in numbers])  # audit entries can be loaded only in this order
    for start in range(0, len(rows), _LOADED_AT_ONCE):
        connection.execute(insert(table), rows[start : start + _LOADED_AT_ONCE])
    if connection.dialect.name == "postgresql":
        _raise_counters(connection, table)


def _restored(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromisoformat(value)
        if value is not None and isinstance(table.columns[name].type, DateTime)
        else value
        for name, value in row.items()
    }


def _raise_counters(connection: Connection, table: Table) -> None:
    """Set PostgreSQL's sequences after the highest loaded numbers, which it did not generate itself."""
    for column in table.primary_key.columns:
        if isinstance(column.type, Integer):
            connection.execute(
                text(
                    f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column.name}'), max({column.name})) "
                    f"FROM {table.name} HAVING max({column.name}) IS NOT NULL "
                    f"AND pg_get_serial_sequence('{table.name}', '{column.name}') IS NOT NULL"
                )
            )


def _require_empty(connection: Connection, tables: list[Table], shown_url: str) -> None:
    for table in tables:
        rows = connection.execute(select(table).limit(2)).all()
        # The revision counter has one row, created by its migration.
        if len(rows) > (1 if table.name == "revision" else 0):
            raise ConfigurationError(
                f"the control database {shown_url} has rows in {table.name} already; name an empty one, "
                "so that nothing is mixed with what is there"
            )
