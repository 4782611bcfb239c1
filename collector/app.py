"""Builds the collector's parts from its settings, connects them, and runs them."""

import logging
import random
from collections.abc import Callable
from typing import Final

from backends.network.detail_access import DetailAccess
from backends.secrets.secret_files import SecretFiles
from backends.segment_log.disk_room import WatchedDisk
from backends.segment_log.pieces import STORED_ROWS, Pieces, PieceWatch
from backends.segment_log.segments import SegmentLog
from backends.store.address import StoreAddress
from backends.store.batch_claims import BatchClaims
from backends.store.columns import arrow_batch
from backends.store.known_columns import KnownColumns
from backends.store.location import FollowingStore, StoreLocation
from backends.store.store_locks import StoreLocks
from collector.counters import Counters
from collector.dead_letters import DeadLetters
from collector.exporters.clickhouse import ClickHouseExporter
from collector.exporters.insert_plan import PlanFile
from collector.exporters.inserts import RowStore
from collector.exporters.planner import InsertPlanner
from collector.exporters.token_window import TokenWindow
from collector.forwarding.making import make_forwarders
from collector.health import Health
from collector.receiving import Receiving, make_pipeline
from collector.rows import Processed
from collector.servers import Listener, bind, serve_until_signal
from collector.settings import CollectorSettings
from collector.spool import Spool, SpooledBatch, received_at_ns
from collector.state import CollectorState

_log = logging.getLogger(__name__)
FLUSH_SECONDS: Final = 5.0
FORWARD_SECONDS: Final = 1.0
SPOOL: Final = "spool"
SETTLE_SECONDS: Final = 60.0


class Collector:
    """A collector with all its parts. Raises ConfigurationError if a port, a directory or a secret is unusable."""

    def __init__(self, settings: CollectorSettings) -> None:
        store = FollowingStore(store_address(settings), StoreLocation(settings.data))
        store.require_own()
        self._sockets = [
            bind(settings.host, settings.collector_port, "TOLLKEEPER_COLLECTOR_PORT"),
            bind(settings.host, settings.collector_health_port, "TOLLKEEPER_COLLECTOR_HEALTH_PORT"),
        ]
        counters = self._counters = Counters()
        self._pieces = Pieces(settings.data)
        self._loss = self._pieces.find_loss(SPOOL, settings.spool_directory)
        self._watch = PieceWatch(self._note_pieces)
        self._spool = open_spool(settings)
        dead_letters = DeadLetters(
            settings.spool_directory, max_bytes=settings.dead_letter_max_bytes, counters=counters
        )
        self._forwarders = make_forwarders(settings, counters)
        self._receiving = Receiving(settings, self._spool, counters, self._forwarders)
        self._exporter = make_exporter(
            settings, self._spool, self._receiving.pipeline.process, store, dead_letters, counters
        )
        self._noted_rows = self._pieces.held(STORED_ROWS)  # by earlier processes of this data directory
        self._has_noted_rows = bool(self._noted_rows)
        missing = () if self._loss is None else (self._loss.facts,)
        disks = (WatchedDisk("spool", "TOLLKEEPER_DATA", settings.spool_directory),)
        state = CollectorState(self._spool, self._exporter, dead_letters, counters, missing, disks, self._forwarders)
        health = Health(state, DetailAccess(settings.metrics_token, settings.data))
        self._listeners = [
            Listener(bound, app, settings.bounds())
            for bound, app in zip(self._sockets, (self._receiving.http_app(), health.app()), strict=True)
        ]

    def _note_pieces(self) -> None:
        """Record the spool's size and the rows stored so far, so that a later start detects missing data."""
        self._pieces.note(SPOOL, {"bytes_waiting": self._spool.pending_bytes})
        exported: dict[str, int] = self._counters.snapshot()["exported"]
        known = {f"rows_of_{name}": rows for name, rows in exported.items()}
        if self._has_noted_rows and not self._pieces.held(STORED_ROWS):  # the store was replaced since
            self._noted_rows = {name: -rows for name, rows in known.items()}
        total = {name: self._noted_rows.get(name, 0) + known.get(name, 0) for name in {*self._noted_rows, *known}}
        if any(total.values()):
            self._pieces.note(STORED_ROWS, total)
            self._has_noted_rows = True

    async def run(self) -> None:
        """Receive and export until SIGTERM or SIGINT; then flush for at most five seconds."""
        otlp, health = (bound.getsockname()[1] for bound in self._sockets)
        _log.info(
            "collector started otlp_http_port=%d otlp_grpc_port=%d health_port=%d waiting_bytes=%d",
            otlp,
            self._receiving.grpc_port,
            health,
            self.waiting,
        )
        self._watch.start()
        self._receiving.start()
        self._exporter.start()
        for forwarder in self._forwarders:
            forwarder.start()
        await serve_until_signal(self._listeners)
        self._receiving.stop()
        for forwarder in self._forwarders:
            forwarder.stop(FORWARD_SECONDS)
        ended = self._exporter.stop(FLUSH_SECONDS)
        self._watch.stop()
        _log.info("collector stopped waiting_bytes=%d", self.waiting)
        if ended:
            self._spool.close()  # otherwise at exit: a late release must not follow a new owner's

    @property
    def waiting(self) -> int:
        """Return the number of bytes in the spool that the store does not have."""
        return self._spool.pending_bytes


def settle(settings: CollectorSettings) -> bool:
    """Complete the insert during which a collector of this data directory was killed; export nothing else.

    Run it in an upgrade before the store's migration, after which the store no longer recognises the insert's
    deduplication token. Returns whether no unfinished insert is left. Raises ConfigurationError, for example if the
    spool is in use.
    """
    counters = Counters()
    spool = open_spool(settings)
    dead_letters = DeadLetters(settings.spool_directory, max_bytes=settings.dead_letter_max_bytes, counters=counters)
    process = make_pipeline(settings, spool, counters).process
    store = FollowingStore(store_address(settings), StoreLocation(settings.data))
    exporter = make_exporter(settings, spool, process, KnownColumns(store), dead_letters, counters)
    try:
        return exporter.settle(SETTLE_SECONDS)
    finally:
        store.close()
        spool.close()


def open_spool(settings: CollectorSettings) -> Spool:
    """Open the spool of the data directory, with a lock that excludes other processes."""
    return Spool(
        SegmentLog(
            settings.spool_directory,
            max_bytes=settings.spool_max_bytes,
            fsync=settings.spool_fsync,
            retain_bytes=settings.spool_retain_bytes,
            time_of=received_at_ns,
        )
    )


def make_exporter(
    settings: CollectorSettings,
    spool: Spool,
    process: Callable[[SpooledBatch], Processed],
    store: RowStore,
    dead_letters: DeadLetters,
    counters: Counters,
) -> ClickHouseExporter:
    """Return the exporter to ClickHouse. Its state files are beside the spool."""
    is_synced = settings.spool_fsync == "always"
    plan_file = PlanFile(settings.spool_directory / "insert.plan", is_synced=is_synced)
    window = TokenWindow(store, settings.spool_directory / "insert.window", is_synced=is_synced)
    return ClickHouseExporter(
        spool,
        InsertPlanner(spool, plan_file, BatchClaims(store), counters, window),
        process,
        store,
        arrow_batch,
        dead_letters,
        counters,
        random.Random(),
        StoreLocks(settings.data),
    )


def store_address(settings: CollectorSettings) -> StoreAddress:
    """Return the store's address. If no password is set, the embedded store's is read from its secret file."""
    return StoreAddress.resolve(
        settings.store_url,
        settings.store_database,
        "writer",
        SecretFiles(settings.data / "secrets"),
        user=settings.store_user,
        password=None if settings.store_password is None else settings.store_password.get_secret_value(),
    )
