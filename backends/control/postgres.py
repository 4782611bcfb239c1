"""PostgreSQL on one or several servers: finds the one that accepts writes, and detects when it stops.

Among several hosts, the primary is the server that accepts writes with the latest timeline: PostgreSQL starts a
timeline at each promotion, so a former primary that returns is not used.
"""

import logging
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.exc import DisconnectionError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry

from backends.control.postgres_hosts import Host, hosts_of, without_hosts
from contracts.errors import ConfigurationError

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

_CONNECT_SECONDS: Final = 5
_HOST_SECONDS: Final = 2  # to connect to one host of several
_SILENCE_SECONDS: Final = 3.0  # without an answer; then another connection checks the server
_LOOK_SECONDS: Final = 2.0  # between two searches for a later primary
_READS_WRITES: Final = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')"
_TIMELINE: Final = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
_TIMELINE_KEY: Final = "tollkeeper_timeline"


def postgres_engine(url: URL, **options: Any) -> Engine:
    """Return an engine whose connections accept writes. Raises ConfigurationError if psycopg is missing."""
    hosts = hosts_of(url)
    single = url if not hosts else url.set(host=hosts[0][0], port=hosts[0][1], query=without_hosts(url))
    try:
        engine = create_engine(
            single, pool_pre_ping=True, connect_args={"connect_timeout": _CONNECT_SECONDS}, **options
        )
    except (ImportError, NoSuchModuleError) as error:
        raise ConfigurationError("PostgreSQL needs psycopg; install tollkeeper[gateway]") from error
    if hosts:
        servers = PostgresServers(hosts)
        event.listen(engine, "do_connect", lambda _, __, ___, wanted: servers.connect(wanted))
        event.listen(engine, "checkout", servers.on_checkout)
    return engine


@dataclass(frozen=True, slots=True)
class _Found:
    host: Host
    timeline: int


class PostgresServers:
    """The servers of one database. Safe to share between threads."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = tuple(hosts)
        self._lock = threading.Lock()
        self._latest: _Found | None = None
        self._looked_at = 0.0
        self._is_looking = False

    def connect(self, wanted: dict[str, Any]) -> psycopg.Connection[Any]:
        """Return a connection to the primary. Raises psycopg.OperationalError if no host is the primary."""
        with self._lock:
            latest = self._latest
        if latest is not None:
            try:
                return self._connect(latest.host, wanted)
            except psycopg.OperationalError:
                pass  # it is unreachable, or no longer the primary
        found = self._look(wanted)
        if found is None:
            hosts = ", ".join(f"{host}:{port}" for host, port in self._hosts)
            raise psycopg.OperationalError(f"none of {hosts} takes writes")
        return self._connect(found.host, wanted)

    def on_checkout(self, connection: Any, record: ConnectionPoolEntry, _: object) -> None:
        """Drop a pooled connection to a replaced server; start a search for a later primary in the background."""
        timeline = record.info.get(_TIMELINE_KEY)
        if timeline is None:
            timeline = record.info[_TIMELINE_KEY] = connection.timeline
        with self._lock:
            latest = self._latest
            is_due = not self._is_looking and time.monotonic() - self._looked_at > _LOOK_SECONDS
            self._is_looking = self._is_looking or is_due
        if is_due:
            threading.Thread(target=self._look_behind, args=(dict(connection.wanted),), daemon=True).start()
        if latest is not None and timeline < latest.timeline:
            raise DisconnectionError("the server has been replaced by another primary")

    def _look_behind(self, wanted: dict[str, Any]) -> None:
        try:
            self._look(wanted)
        finally:
            with self._lock:
                self._is_looking = False

    def _look(self, wanted: dict[str, Any]) -> _Found | None:
        """Ask every host; return the one that accepts writes on the latest timeline."""
        found: list[_Found] = []
        for host in self._hosts:
            try:
                with self._connect(host, wanted) as connection:
                    found.append(_Found(host, connection.timeline))
            except psycopg.Error:
                continue
        best = max(found, key=lambda one: one.timeline, default=None)
        with self._lock:
            self._looked_at = time.monotonic()
            if best is None:
                return None
            if self._latest is not None and best.timeline < self._latest.timeline:
                return None  # only servers with an older timeline are left: former primaries
            if self._latest is not None and best.host != self._latest.host:
                _log.warning("postgres_primary_changed", extra={"host": f"{best.host[0]}:{best.host[1]}"})
            for one in found:
                if one.timeline < best.timeline:
                    _log.warning("postgres_former_primary", extra={"host": f"{one.host[0]}:{one.host[1]}"})
            self._latest = best
        return best

    def _connect(self, host: Host, wanted: dict[str, Any]) -> "WatchedConnection":
        stated = {**wanted, "host": host[0], "port": host[1], "connect_timeout": _HOST_SECONDS}
        connection = WatchedConnection.connect(**stated)
        try:
            connection.wanted = stated
            is_standby, is_read_only = connection.execute(_READS_WRITES).fetchone() or (True, "on")
            if is_standby or is_read_only == "on":
                raise psycopg.OperationalError(f"{host[0]}:{host[1]} does not take writes")
            row = connection.execute(_TIMELINE).fetchone()
            connection.timeline = int(row[0], 16) if row else 0
            connection.rollback()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if self._latest is not None and connection.timeline < self._latest.timeline:
                connection.close()
                raise psycopg.OperationalError(f"{host[0]}:{host[1]} is a former primary")
        return connection


class WatchedConnection(psycopg.Connection[Any]):
    """A connection that fails if a statement gets no answer and the server accepts no further connection.

    So a statement may take long, but a frozen server, which accepts no connection, is detected.
    """

    wanted: dict[str, Any]
    timeline: int = 0

    def wait(self, gen: Generator[Any, Any, ResultT], interval: float = 0.1, timeout: float | None = None) -> ResultT:
        """Wait for an answer. Raises psycopg.OperationalError if the server is unreachable."""
        return super().wait(self._watched(gen), interval, timeout)

    def _watched(self, gen: Generator[Any, Any, ResultT]) -> Generator[Any, Any, ResultT]:
        try:
            state = next(gen)
            heard = time.monotonic()
            while True:
                ready = yield state
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _SILENCE_SECONDS and self._is_connected():
                    self._require_server()
                    heard = time.monotonic()
                state = gen.send(ready)
        except StopIteration as end:
            value: ResultT = end.value
            return value

    def _is_connected(self) -> bool:
        return hasattr(self, "wanted") and self.pgconn.transaction_status != TransactionStatus.UNKNOWN

    def _require_server(self) -> None:
        try:
            psycopg.connect(**self.wanted).close()
        except psycopg.OperationalError as error:
            self.pgconn.finish()
            raise psycopg.OperationalError("the server neither answers nor takes a connection") from error
