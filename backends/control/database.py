"""Connections and sessions of the control-plane database: SQLite or PostgreSQL, depending on the URL."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
)
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry

from backends.control.audit_chain import chain_pending, drop_pending
from backends.control.postgres_hosts import split_hosts, with_hosts
from backends.control.unreadable_rows import begin_noting, leave_out_unreadable, refuse_missing
from backends.secrets.private_files import make_database_file
from contracts.control import SCHEMA_HEAD
from contracts.errors import (
    ConfigurationError,
    Conflict,
    ControlUnavailable,
    NewerSchema,
    NotFound,
    TollkeeperError,
)

_BUSY_MILLISECONDS: Final = 5000
_VERSION_TABLE: Final = "alembic_version"
_SQLSTATE_DISK_FULL: Final = "53100"
_DAMAGED: Final = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})


class ControlDatabase:
    """A control-plane database. Connects at first use. Threads may share it, each with its own session."""

    def __init__(self, url: str) -> None:
        """`url` is SQLAlchemy's; `postgresql://` means psycopg 3. Raises ConfigurationError on an unusable one."""
        self.url: URL = database_url(url)
        self.engine: Engine = _engine(self.url)
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)
        event.listen(self._sessions, "before_commit", chain_pending)
        event.listen(self._sessions, "after_rollback", drop_pending)
        event.listen(self._sessions, "do_orm_execute", leave_out_unreadable)
        self._is_closed = False
        event.listen(self.engine, "checkin", self._close_late)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Open a session that commits when the block ends and rolls back when it raises.

        Unreadable rows are left out of results, except for queries with the option READS_ALL. Raises ControlUnavailable
        if the database does not answer, Conflict if it refuses the change (a name in use, or a row that is still
        referenced), and RowUnreadable if the requested row cannot be read.
        """
        try:
            with self._sessions.begin() as session:
                begin_noting(session)
                try:
                    yield session
                except NotFound as error:
                    refuse_missing(session, error)
                    raise
        except DBAPIError as error:
            raise self._translated(error) from error

    def is_healthy(self) -> bool:
        """Return whether the database answers; never raises."""
        try:
            with self.session() as session:
                session.execute(text("SELECT 1"))
        except TollkeeperError:
            return False
        return True

    def check_schema(self) -> None:
        """Verify that the database is at the revision of this code.

        Raises NewerSchema, ConfigurationError if it is behind or empty, ControlUnavailable if it does not answer.
        """
        found = self.revision()
        if found == SCHEMA_HEAD:
            return
        if found is not None and (len(found) != len(SCHEMA_HEAD) or not found.isdigit() or found > SCHEMA_HEAD):
            raise NewerSchema(
                f"the control database {self.shown_url} is at revision {found}, this version of Tollkeeper knows "
                f"up to {SCHEMA_HEAD}; install the version that migrated it, or a later one"
            )
        state = "has no tables yet" if found is None else f"is at revision {found} of {SCHEMA_HEAD}"
        raise ConfigurationError(f"the control database {self.shown_url} {state}; run `python -m migrations`")

    def revision(self) -> str | None:
        """Return the migration revision the database is at; `None` if it was never migrated."""
        try:
            with self.engine.connect() as connection:
                if not inspect(connection).has_table(_VERSION_TABLE):
                    return None
                found: str | None = connection.execute(text(f"SELECT version_num FROM {_VERSION_TABLE}")).scalar()
                return found
        except DBAPIError as error:
            raise self._translated(error) from error

    @property
    def is_there(self) -> bool:
        """Return whether the database may exist; False for a missing SQLite file, which opening would create."""
        path = self.url.database
        return self.url.get_backend_name() != "sqlite" or (path not in (None, "", ":memory:") and Path(path).exists())

    @property
    def shown_url(self) -> str:
        """Return the URL for logs and messages: without its password."""
        return self.url.render_as_string(hide_password=True)

    def close(self) -> None:
        """Close the connections: pooled ones now, those of open sessions when these end."""
        self._is_closed = True
        self.engine.dispose()

    def _close_late(self, connection: object, record: ConnectionPoolEntry) -> None:
        if self._is_closed:  # a disposed pool does not close connections returned to it
            record.invalidate()

    def _translated(self, error: DBAPIError) -> TollkeeperError:
        if isinstance(error, IntegrityError):
            return Conflict("the change conflicts with what is there: a name is taken, or something refers to it")
        if _is_damaged(error.orig):
            return ConfigurationError(
                f"{self.url.database} is not a database or is damaged; restore it from a backup, or name another "
                "with --data or TOLLKEEPER_DATABASE_URL"
            )
        if _is_disk_full(error.orig):
            return ControlUnavailable(
                "the disk that holds the control database (TOLLKEEPER_DATA or TOLLKEEPER_DATABASE_URL) is full; make "
                "room there and try again"
            )
        if isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated:
            return ControlUnavailable(
                f"the control database {self.shown_url} does not answer; check TOLLKEEPER_DATABASE_URL and the server"
            )
        return ConfigurationError(
            f"the control database {self.shown_url} refused a statement ({type(error.orig).__name__}); "
            "run `python -m migrations`"
        )


def _is_damaged(error: BaseException | None) -> bool:
    # The low byte is SQLite's primary error code; the higher bits give details.
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def _is_disk_full(error: BaseException | None) -> bool:
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
    return getattr(error, "sqlstate", None) == _SQLSTATE_DISK_FULL


def database_url(url: str) -> URL:
    """Parse a database URL. Raises ConfigurationError if it names neither SQLite nor PostgreSQL."""
    single, hosts = split_hosts(url)
    try:
        parsed = make_url(single)
    except ArgumentError as error:
        raise ConfigurationError(
            "TOLLKEEPER_DATABASE_URL is not a database URL; give sqlite:///FILE, "
            "postgresql://USER:PASSWORD@HOST/NAME, or "
            "postgresql://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME for several servers"
        ) from error
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        parsed = parsed.set(drivername="postgresql+psycopg")
        return with_hosts(parsed, hosts) if hosts else parsed
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        return parsed
    raise ConfigurationError(
        f"TOLLKEEPER_DATABASE_URL names {parsed.drivername!r}; the control plane keeps its data in sqlite or postgresql"
    )


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url)
        if url.database not in (None, "", ":memory:"):
            path = Path(str(url.database))
            event.listen(engine, "do_connect", lambda *_: make_database_file(path))
        event.listen(engine, "connect", _prepare_sqlite)
        return engine
    from backends.control.postgres import postgres_engine  # here: SQLite needs no psycopg

    return postgres_engine(url)


def _prepare_sqlite(connection: sqlite3.Connection, record: Any) -> None:
    """Set up a new SQLite connection: WAL, so that readers never wait for the writer, and a busy timeout
    for writers.
    """
    for pragma in (
        f"busy_timeout = {_BUSY_MILLISECONDS}",
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}").close()
