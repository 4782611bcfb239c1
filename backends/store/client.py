"""The client of the store over ClickHouse's HTTP protocol, for the embedded store and for servers."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from io import IOBase
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

import clickhouse_connect
import urllib3
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, OperationalError
from clickhouse_connect.driver.httputil import get_pool_manager

from backends.store.address import StoreAddress
from backends.store.owner import owner_in, owner_question, require_owner
from contracts.errors import ConfigurationError, ForeignStore, StoreRefused, StoreUnavailable, TollkeeperError

if TYPE_CHECKING:
    import pandas
    import pyarrow

# Both log warnings before the library raises an error, which this module translates: one without details, the other
# with whole URLs at every try.
logging.getLogger("clickhouse_connect").setLevel(logging.ERROR)
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)

_CONNECT_SECONDS: Final = 5
_ANSWER_SECONDS: Final = 60
# A store that accepts connections without answering counts as unreachable after this time.
_FIRST_ANSWER_SECONDS: Final = 10
_PIECE_BYTES: Final = 1 << 20
_LEFT_TO_MERGES: Final = "word_in_end_user"  # search index (migration 0024) whose build would delay inserts

# ClickHouse's error codes (src/Common/ErrorCodes.cpp) by what the caller should do.
_MIGRATE: Final = {60: "a table is missing", 81: "the database is missing", 16: "a column is missing"}
_CREDENTIALS: Final = frozenset({192, 193, 194, 516})
_FORBIDDEN: Final = frozenset({497, 164})
_LATER: Final = {
    159: "the query ran into its time limit",
    202: "too many queries run at once",
    241: "the query ran into the memory limit",
    242: "the table is read-only",
    252: "too many parts wait to be merged",
    394: "the query was cancelled",
    201: "a quota is used up",
    203: "the server is shutting down",
    236: "the query was aborted",
}
# Failures of the server's files, memory, threads, network, replicas or object store, such as a full disk. The statement
# and rows are not at fault, so the data must not be set aside as refused.
_SERVER_FAILED: Final = frozenset(
    {74, 75, 76, 77, 84, 87, 88, 95, 96, 107, 172, 173, 204, 209, 210, 214, 225, 244, 254, 285, 286, 294, 319, 400}
    | {411, 425, 439, 499, 586, 641, 733, 734, 777, 778, 999, 1000, 1001}
)

# Otherwise the server buffers every answer in a file, and on a full disk sends an empty one with status 200. An error
# in the middle of an answer is recognised by its tag.
_UNBUFFERED: Final = {"wait_end_of_query": "0"}
# On a cluster, joins and IN read tables of all shards, which the server refuses by default; and inserted rows are
# visible when the statement ends instead of later.
_OVER_SHARDS: Final = {"distributed_product_mode": "global", "distributed_foreground_insert": 1}
STORE_DISK_FULL: Final = "store_disk_full"
_NO_SPACE: Final = 243
_NO_SPACE_TEXT: Final = "No space left on device"  # in file errors, whose code does not identify it

Row = dict[str, object]


class StoreClient:
    """Queries and inserts into one database of a store. Connects at first use; for one thread at a time.

    Every method raises StoreUnavailable if the store is unreachable or asks to retry later (the next call connects
    again), ConfigurationError if it must be migrated or refuses the credentials, ForeignStore if it belongs to another
    installation than the address, and StoreRefused if the statement is at fault.
    """

    def __init__(self, address: StoreAddress, *, answer_seconds: int = _ANSWER_SECONDS) -> None:
        self.address = address
        self._answer_seconds = answer_seconds
        # A pool of its own, so that closing it affects no other client; without urllib3's retries, whose warnings would
        # log whole URLs with their parameters.
        self._pool = get_pool_manager(maxsize=4, retries=0)
        self._client: Client | None = None

    def query(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> list[Row]:
        """Return the rows of a SELECT as dicts by column name. `{name:Type}` in `sql` is a bound parameter."""
        try:
            result = self._connected().query(
                sql, parameters=dict(parameters or {}), settings={**_UNBUFFERED, **_OVER_SHARDS, **(settings or {})}
            )
            return [dict(zip(result.column_names, row, strict=True)) for row in result.result_rows]
        except (ClickHouseError, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._translated(error, "a query") from error

    def query_columns(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> dict[str, Sequence[object]]:
        """Return the result of a SELECT by column, which is faster than dicts for thousands of rows.

        Without rows there are no columns either, because the native format then sends nothing.
        """
        try:
            result = self._connected().query(
                sql, parameters=dict(parameters or {}), settings={**_UNBUFFERED, **_OVER_SHARDS, **(settings or {})}
            )
            return dict(zip(result.column_names, result.result_columns, strict=True))
        except (ClickHouseError, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._translated(error, "a query") from error

    def query_frame(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> "pandas.DataFrame":
        """Return the result of a SELECT as a data frame, with its columns even if there are no rows."""
        bound, chosen = dict(parameters or {}), {**_UNBUFFERED, **_OVER_SHARDS, **(settings or {})}
        try:
            client = self._connected()
            frame = client.query_df(sql, parameters=bound, settings=chosen)
            if len(frame.columns) == 0:  # the native format sends nothing if there are no rows
                named = client.raw_query(sql, parameters=bound, settings=chosen, fmt="JSONCompactEachRowWithNames")
                frame = frame.reindex(columns=json.loads(named.splitlines()[0]))
            return frame
        except (ClickHouseError, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._translated(error, "a query") from error

    def command(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> object:
        """Run a statement that returns no rows, or a single value."""
        try:
            return self._connected().command(
                sql, parameters=dict(parameters or {}), settings={**_OVER_SHARDS, **(settings or {})}
            )
        except (ClickHouseError, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._translated(error, "a command") from error

    def insert_arrow(self, table: str, data: "pyarrow.Table", *, deduplication_token: str) -> None:
        """Insert a batch exactly once per table and token, in the table and its rollups.

        May be repeated after any failure: the store skips what it has and completes what it had begun.
        """
        settings = {
            "insert_deduplication_token": deduplication_token,
            "deduplicate_blocks_in_dependent_materialized_views": 1,
            "insert_deduplicate": 1,
            "async_insert": 0,  # asynchronous inserts lose the token
            "distributed_foreground_insert": 1,  # on a cluster: acknowledged when the shards have it
            "max_threads": 1,  # a batch is one block, also when repeated; and small batches need half the CPU time
            "exclude_materialize_skip_indexes_on_insert": _LEFT_TO_MERGES,
            "max_partitions_per_insert_block": 500,  # one late batch may touch each day of the 400 that are kept
        }
        try:
            client = self._connected()
            # Arrow's stream format: with the file format the server would keep the whole body in memory.
            body = _as_stream(data, None if self.address.is_loopback else "lz4")
            client.raw_insert(table, data.column_names, cast(bytes, body), settings=settings, fmt="ArrowStream")
        except (ClickHouseError, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._translated(error, f"an insert of {data.num_rows} rows into {table}") from error

    def stream(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        form: str = "Native",
    ) -> Iterator[bytes]:
        """Yield the bytes of a SELECT's result in a ClickHouse format, in pieces as they arrive.

        A failure half-way may end the bytes early without an error, so callers must compare a checksum.
        """
        try:
            source = cast(
                IOBase,
                self._connected().raw_stream(
                    sql, parameters=dict(parameters or {}), settings={**_OVER_SHARDS, **(settings or {})}, fmt=form
                ),
            )
            with closing(source):
                while piece := source.read(_PIECE_BYTES):
                    yield piece
        except (ClickHouseError, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._translated(error, "a query") from error

    def insert_stream(
        self,
        table: str,
        columns: Sequence[str],
        pieces: Iterable[bytes],
        *,
        settings: Mapping[str, object] | None = None,
        form: str = "Native",
    ) -> None:
        """Insert bytes of `stream`. Must not be repeated after a failure, because a part may have been stored."""
        try:
            self._connected().raw_insert(
                table, list(columns), (piece for piece in pieces), settings=dict(settings or {}), fmt=form
            )
        except (ClickHouseError, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._translated(error, f"an insert into {table}") from error

    def ping(self) -> bool:
        """Return whether the store answers and belongs to this installation; never raises."""
        try:
            return bool(self._connected().ping())
        except (ClickHouseError, urllib3.exceptions.HTTPError, OSError, TollkeeperError):
            return False

    def require_own(self) -> None:
        """Raise ForeignStore if the store answers and belongs to another installation. Called at a process's start."""
        try:
            self.query("SELECT 1")
        except ForeignStore:
            raise
        except TollkeeperError:
            return  # reported by later calls

    def close(self) -> None:
        """Close the connections. A further call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
        self._pool.clear()

    def _connected(self) -> Client:
        if self._client is None:
            parts = urlsplit(self.address.url)
            patience = urllib3.Timeout(connect=_CONNECT_SECONDS, read=_FIRST_ANSWER_SECONDS)
            self._pool.request("GET", f"{self.address.url.rstrip('/')}/ping", timeout=patience, retries=False)
            self._client = clickhouse_connect.get_client(
                host=parts.hostname,
                port=parts.port or (443 if parts.scheme == "https" else 80),
                interface=parts.scheme,
                username=self.address.user,
                password=self.address.password,
                # Named per request, not here: the handshake must succeed before the database exists.
                database="default",
                compress=False if self.address.is_loopback else "lz4",
                connect_timeout=_CONNECT_SECONDS,
                send_receive_timeout=self._answer_seconds,
                autogenerate_session_id=False,  # a session would refuse a second query at a time
                tz_mode="aware",  # DateTime columns come back as UTC, not as naive wall time
                pool_mgr=self._pool,
            )
            if self.address.installation:
                self._require_owner()  # before the database is named: it need not exist yet, as before a restore
            self._client.database = self.address.database
        return self._client

    def _require_owner(self) -> None:
        """Raise ForeignStore if the store that was just connected to belongs to another installation."""
        where = f"the store at {self.address.shown_url}, database {self.address.database!r},"
        try:
            # As the store's user, even if a subclass restricts queries.
            rows = StoreClient.query(self, *owner_question(self.address.database))
            require_owner(owner_in(rows), self.address.installation, where)
        except TollkeeperError:
            self.close()  # checked again at the next call, which may reach another server
            raise

    def _translated(self, error: Exception, what: str) -> TollkeeperError:
        where = f"the store at {self.address.shown_url}"
        code = getattr(error, "code", None)
        if not isinstance(error, ClickHouseError) or (isinstance(error, OperationalError) and code is None):
            self.close()
            return StoreUnavailable(f"{where} does not answer; is it running? (TOLLKEEPER_STORE_URL)")
        if code in _CREDENTIALS:
            self.close()
            return ConfigurationError(
                f"{where} refuses user {self.address.user!r}; check TOLLKEEPER_STORE_USER and _PASSWORD, or that "
                "TOLLKEEPER_DATA is the store's own"
            )
        if code in _MIGRATE:
            return ConfigurationError(
                f"{what} failed at {where}, database {self.address.database!r}: {_MIGRATE[code]}; "
                "run `python -m migrations`"
            )
        if code == _NO_SPACE or (code in _SERVER_FAILED and _NO_SPACE_TEXT in str(error)):
            return StoreUnavailable(
                f"{where} cannot serve {what} now: its disk is full (code {code}); make room there. It goes on by "
                "itself then",
                code=STORE_DISK_FULL,
            )
        if code in _LATER:
            return StoreUnavailable(f"{where} cannot serve {what} now: {_LATER[code]} (code {code})")
        name = getattr(error, "name", None) or "unknown"
        if code in _SERVER_FAILED:
            return StoreUnavailable(f"{where} cannot serve {what} now: it failed itself (code {code}, {name})")
        if code in _FORBIDDEN:
            return StoreRefused(
                f"{where} forbids {what} to user {self.address.user!r} (code {code}, {name})", code="store_forbidden"
            )
        # The server's message may quote values, so it is only in the cause.
        return StoreRefused(f"{where} refused {what} (code {code}, {name})")


def _as_stream(data: "pyarrow.Table", compression: str | None) -> "pyarrow.Buffer":
    from pyarrow import BufferOutputStream, ipc  # here, not above: who only asks does without its 100 MB

    sink = BufferOutputStream()
    with ipc.new_stream(sink, data.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(data.combine_chunks())  # as one block, because tokens of several depend on their order
    return sink.getvalue()
