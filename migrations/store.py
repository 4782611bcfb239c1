"""Brings the store to head: numbered SQL files, each applied once and recorded with its checksum.

ClickHouse has no transactions over DDL, so every statement in the files can be repeated: a migration that was cut
half-way is run again from its first statement, and recorded only after its last.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from backends.store.owner import read_owner, write_owner
from backends.store.snapshot import has_rows
from backends.store.store_locks import StoreLocks
from backends.store.tables import list_tables, list_views, quoted
from contracts.errors import ConfigurationError, NewerSchema, StoreRefused, StoreUnavailable
from migrations.cluster import ClusterRendering

ResultT = TypeVar("ResultT")

SCRIPTS: Final = Path(__file__).parent / "clickhouse"
_FILE_NAME: Final = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_MADE: Final = re.compile(r"^CREATE TABLE IF NOT EXISTS (\w+)\b")
_DERIVED: Final = re.compile(r"^CREATE MATERIALIZED VIEW IF NOT EXISTS \w+ TO (\w+) AS\b")
_VIEW: Final = re.compile(r"^CREATE MATERIALIZED VIEW IF NOT EXISTS (\w+)\b")
_VIEW_DROPPED: Final = re.compile(r"^DROP VIEW IF EXISTS (\w+)$")
_FILLED: Final = re.compile(r"^INSERT INTO (\w+)\b")
_POLL_SECONDS: Final = 0.1
_STATEMENT_SECONDS: Final = 3 * 3600  # a table that is copied into another
_RECORD: Final = (
    "INSERT INTO schema_migrations (version, name, checksum) "
    "VALUES ({version:UInt32}, {name:String}, {checksum:String})"
)
_HAS_RECORD: Final = "database = {database:String} AND name = 'schema_migrations'"
_RECORD_TABLE: Final = """
CREATE TABLE IF NOT EXISTS schema_migrations
(
    version UInt32,
    name String,
    checksum String,
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree
ORDER BY version
"""


@dataclass(frozen=True, slots=True)
class StoreMigration:
    """One numbered SQL file."""

    version: int
    name: str
    sql: str

    @property
    def label(self) -> str:
        """Return its name as it is shown: "0001_requests"."""
        return f"{self.version:04}_{self.name}"

    @property
    def checksum(self) -> str:
        """Return the SHA-256 of its text, which must never change once it was applied anywhere."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    def statements(self) -> Iterator[str]:
        """Yield its statements. A statement ends with a semicolon at a line's end; comment lines are dropped."""
        code = "\n".join(line for line in self.sql.splitlines() if not line.lstrip().startswith("--"))
        for statement in re.split(r";[ \t]*(?:\n|$)", code):
            if statement.strip():
                yield statement.strip()


def read_migrations(directory: Path = SCRIPTS) -> list[StoreMigration]:
    """Read the files in order. Raises ConfigurationError on a misnamed, doubled or missing number."""
    found = []
    for path in sorted(directory.glob("*.sql")):
        matched = _FILE_NAME.match(path.name)
        if matched is None:
            raise ConfigurationError(f"migration {path.name} must be called NNNN_name.sql")
        found.append(StoreMigration(int(matched[1]), matched[2], path.read_text()))
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise ConfigurationError(f"the migrations in {directory} must be numbered from 0001 without doubles or holes")
    return found


def migrate_store(
    address: StoreAddress,
    migrations: Sequence[StoreMigration],
    *,
    wait_seconds: float,
    say: Callable[[str], None],
    cluster: str = "",
    turns: StoreLocks | None = None,
    is_adopted: bool = False,
) -> None:
    """Apply what is missing, one line per file through `say`. Safe to repeat, and while others read.

    `turns` are those of the installation whose collector writes to this store. A file that copies rows or replaces
    views keeps it waiting, and is refused while one of its batches may be stored and will come again: that would be
    copied or known by the views before alone, and then derived as well. A rollup that a file makes and does not fill is
    filled from the rows that are there.

    With `cluster`, the name of one that the server at `address` knows, tables are made on all its nodes
    (`migrations.cluster`). Waits up to `wait_seconds` for the store to answer. The installation that `address` names
    is written down as the store's owner; with `is_adopted` also in place of another. Raises StoreUnavailable,
    ForeignStore, NewerSchema where the store has a migration this code does not know, ConfigurationError where an
    applied file has changed.
    """
    rendering = ClusterRendering(cluster) if cluster else None
    if cluster:
        _check_cluster(address, wait_seconds, cluster)
    _create_database(address, wait_seconds, rendering)
    asked = replace(address, installation="") if is_adopted else address
    client = StoreClient(asked, answer_seconds=_STATEMENT_SECONDS)
    try:
        client.command(rendering.record_table if rendering else _RECORD_TABLE)
        if address.installation and read_owner(client, address.database) != address.installation:
            write_owner(client, address.installation, rendering.on_cluster if rendering else "")
        applied = _applied(client)
        _check_history(migrations, applied)
        missing = [migration for migration in migrations if migration.version not in applied]
        for migration in migrations:
            # Also of those that are applied: what follows depends on which tables they made.
            statements = list(rendering.statements(migration.statements()) if rendering else migration.statements())
            if migration not in missing:
                continue
            _apply(client, migration, statements, turns, is_filled=bool(applied), is_cluster=bool(cluster))
            say(f"store: applied {migration.label}")
        if not missing:
            say(f"store: at head ({migrations[-1].label})" if migrations else "store: nothing to apply")
    finally:
        client.close()


def _apply(
    client: StoreClient,
    migration: StoreMigration,
    statements: Sequence[str],
    turns: StoreLocks | None,
    *,
    is_filled: bool,
    is_cluster: bool,
) -> None:
    """Run a file's statements, fill the rollups that it makes, and write down that it was applied."""
    # A store that was empty has nothing to copy, and what is in doubt is of another.
    new_rollups = _new_rollups(migration) if is_filled and not is_cluster else []
    with _held(turns) if is_filled and (_needs_quiet(migration) or new_rollups) else nullcontext():
        for statement in statements:
            client.command(statement)
        _fill(client, new_rollups)
        facts = {"version": migration.version, "name": migration.name, "checksum": migration.checksum}
        client.command(_RECORD, facts)


def check_store(
    address: StoreAddress, migrations: Sequence[StoreMigration], *, wait_seconds: float, is_adopted: bool = False
) -> None:
    """Make sure that a store can be migrated by this code, and change nothing. Raises as `migrate_store` does."""
    named = {"database": address.database}
    counting = "SELECT count() AS n FROM system.tables WHERE " + _HAS_RECORD
    found = _once_there(address, wait_seconds, lambda server: server.query(counting, named))
    if not found[0]["n"]:
        return
    client = StoreClient(replace(address, installation="") if is_adopted else address)
    try:
        _check_history(migrations, _applied(client))
    finally:
        client.close()


def _applied(client: StoreClient) -> dict[int, dict[str, object]]:
    rows = client.query("SELECT version, name, checksum FROM schema_migrations FINAL ORDER BY version")
    return {int(str(row["version"])): row for row in rows}


def _needs_quiet(migration: StoreMigration) -> bool:
    """Return whether a file copies rows, or replaces a view by one that does not know the tokens of before."""
    statements = list(migration.statements())
    made = {found[1] for statement in statements if (found := _VIEW.match(statement))}
    dropped = {found[1] for statement in statements if (found := _VIEW_DROPPED.match(statement))}
    return any(statement.startswith("INSERT INTO ") for statement in statements) or bool(dropped and made)


def _new_rollups(migration: StoreMigration) -> list[str]:
    """Return the tables that a file makes and fills by a view alone, which takes only what comes from then on."""
    statements = list(migration.statements())
    made = {found[1] for statement in statements if (found := _MADE.match(statement))}
    filled = {found[1] for statement in statements if (found := _FILLED.match(statement))}
    derived = [found[1] for statement in statements if (found := _DERIVED.match(statement))]
    return [table for table in derived if table in made - filled]


def _fill(client: StoreClient, rollups: Sequence[str]) -> None:
    """Fill rollups from the rows that are there. Their own rollups follow, through their views."""
    views = [view for view in list_views(client) if view.target in rollups]
    for view in views:
        client.command(f"TRUNCATE TABLE {quoted(view.target)}")  # of a file that was cut here
    columns = {table.name: ", ".join(quoted(name) for name in table.columns) for table in list_tables(client)}
    for view in views:
        if view.source not in rollups and has_rows(client, view.source):
            names = columns[view.target]
            client.command(
                f"INSERT INTO {quoted(view.target)} ({names}) SELECT {names} FROM ({view.select})",
                settings={"max_partitions_per_insert_block": 500},
            )


@contextmanager
def _held(turns: StoreLocks | None) -> Iterator[None]:
    if turns is None:
        yield
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(turns.held())
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{error.message}. The migration copies rows or replaces views and would count that batch twice. Run "
                "`python -m collector --settle` first, with the collector's settings: it finishes that batch and ends"
            ) from error
        yield


_CLUSTERS: Final = "SELECT DISTINCT cluster FROM system.clusters ORDER BY cluster"


def _create_database(address: StoreAddress, wait_seconds: float, rendering: ClusterRendering | None) -> None:
    statement = rendering.database if rendering else "CREATE DATABASE IF NOT EXISTS {name:Identifier}"
    _once_there(address, wait_seconds, lambda server: server.command(statement, {"name": address.database}))


def _check_cluster(address: StoreAddress, wait_seconds: float, cluster: str) -> None:
    """Raise ConfigurationError if the server knows no cluster of the name, naming those that it knows."""
    try:
        found = _once_there(address, wait_seconds, lambda server: server.query(_CLUSTERS))
    except StoreRefused:  # the user may not look; the server itself refuses the first statement then
        return
    known = [str(row["cluster"]) for row in found]
    if cluster not in known:
        raise ConfigurationError(
            f"the store at {address.shown_url} knows no cluster {cluster!r}; it knows {', '.join(known) or 'none'}. "
            "Correct TOLLKEEPER_STORE_CLUSTER, or the server's remote_servers"
        )


def _once_there(address: StoreAddress, wait_seconds: float, ask: Callable[[StoreClient], ResultT]) -> ResultT:
    """Return what a store answers whose own database may not exist. Raise StoreUnavailable if it stays away."""
    server = StoreClient(replace(address, database="default"))
    deadline = time.monotonic() + wait_seconds
    try:
        while True:
            try:
                return ask(server)
            except StoreUnavailable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_POLL_SECONDS)
    finally:
        server.close()


def _check_history(migrations: Sequence[StoreMigration], applied: dict[int, dict[str, object]]) -> None:
    known = {migration.version: migration for migration in migrations}
    for version, row in applied.items():
        migration = known.get(version)
        if migration is None:
            raise NewerSchema(
                f"the store has migration {version:04}_{row['name']}, this version of Tollkeeper knows up to "
                f"{max(known, default=0):04}; install the version that migrated it, or a later one"
            )
        if row["checksum"] != migration.checksum:
            raise ConfigurationError(
                f"migration {migration.label} has changed since the store applied it; restore the file and put the "
                "change in a new one"
            )
