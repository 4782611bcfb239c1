"""The objects database: SQLite beside the journal, or PostgreSQL for several gateways.

It is separate from the control database, because its rows are large, short-lived and used by the data plane only.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Column, Connection, Engine, Integer, MetaData, Table, create_engine, event, select
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError

from backends.control.database import database_url
from backends.secrets.private_files import make_database_file
from contracts.errors import NewerSchema, ObjectsUnavailable

SCHEMA_VERSION: Final = 1  # of all tables; when it is raised, a migration step is added below
METADATA: Final = MetaData()
_BUSY_MILLISECONDS: Final = 5000
_POSTGRES_THREADS: Final = 4

_schema: Final = Table("objects_schema", METADATA, Column("version", Integer, primary_key=True))

ResultT = TypeVar("ResultT")


class ObjectsDatabase:
    """Runs short transactions in threads of its own. Creates tables at first use."""

    def __init__(self, url: str) -> None:
        """`url` is a SQLAlchemy URL; `postgresql://` uses psycopg 3. Raises ConfigurationError if it is unusable."""
        self._url = database_url(url)
        self._is_sqlite = self._url.get_backend_name() == "sqlite"
        # SQLite allows one writer, so one thread never waits for a lock of its own process.
        self._threads = ThreadPoolExecutor(1 if self._is_sqlite else _POSTGRES_THREADS, thread_name_prefix="objects")
        # Rows contain prompts, so no error may quote a statement's values, which would reach the logs.
        self._engine = _engine(self._url)
        if self._is_sqlite:
            event.listen(self._engine, "connect", _prepare_sqlite)
        self._tables_made = 0
        self._making = Lock()

    async def run(self, work: Callable[[Connection], ResultT]) -> ResultT:
        """Run `work` in one transaction in a thread. Raises ObjectsUnavailable if the database fails."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, work)

    async def close(self) -> None:
        """Wait for running transactions and close all connections."""
        await asyncio.to_thread(self._threads.shutdown)
        self._engine.dispose()

    def _run(self, work: Callable[[Connection], ResultT]) -> ResultT:
        try:
            if self._tables_made < len(METADATA.tables):
                self._make_tables()
            with self._engine.begin() as connection:
                return work(connection)
        except DBAPIError as error:
            shown = self._url.render_as_string(hide_password=True)
            raise ObjectsUnavailable(
                f"the database of files, batches and kept answers ({shown}) does not answer or refused a statement; "
                "check TOLLKEEPER_OBJECTS_URL, the server and the disk"
            ) from error

    def _make_tables(self) -> None:
        """Create the tables of all modules loaded so far."""
        with self._making:
            wanted = len(METADATA.tables)
            if self._is_sqlite:
                if self._url.database not in (None, "", ":memory:"):
                    make_database_file(Path(str(self._url.database)))
            try:
                METADATA.create_all(self._engine)
            except (ProgrammingError, IntegrityError):
                METADATA.create_all(self._engine)  # another gateway created them at the same time
            self._check_version()
            self._tables_made = wanted

    def _check_version(self) -> None:
        with self._engine.begin() as connection:
            found = connection.execute(select(_schema.c.version)).scalar()
            if found is None:
                connection.execute(_schema.insert().values(version=SCHEMA_VERSION))
            elif found > SCHEMA_VERSION:
                raise NewerSchema(
                    f"the database of files, batches and kept answers is at version {found}, this version of "
                    f"Tollkeeper knows up to {SCHEMA_VERSION}; install the version that made it, or a later one"
                )


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        return create_engine(url, hide_parameters=True)
    from backends.control.postgres import postgres_engine  # here: SQLite needs no psycopg

    return postgres_engine(url, hide_parameters=True)


def _prepare_sqlite(connection: sqlite3.Connection, record: Any) -> None:
    for pragma in (f"busy_timeout = {_BUSY_MILLISECONDS}", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}").close()
