"""Builds the collector from its settings and runs it. Everything that is shared is made here, once."""

import logging
import random
from typing import Final

from backends.detail_access import DetailAccess
from backends.secret_files import SecretFiles
from backends.segments import SegmentLog
from backends.store.address import StoreAddress
from backends.store.batch_claims import BatchClaims
from backends.store.columns import arrow_batch
from backends.store.location import FollowingStore, StoreLocation
from backends.store.turns import StoreTurns
from collector.counters import Counters
from collector.dead_letters import DeadLetters
from collector.exporters.clickhouse import ClickHouseExporter
from collector.exporters.insert_plan import PlanFile
from collector.exporters.planner import InsertPlanner
from collector.exporters.token_window import TokenWindow
from collector.health import Health
from collector.receiving import Receiving
from collector.servers import Listener, bind, serve_until_signal
from collector.settings import CollectorSettings
from collector.spool import Spool
from collector.state import CollectorState

_log = logging.getLogger(__name__)
FLUSH_SECONDS: Final = 5.0


class Collector:
    """The collector's parts, wired. Raises ConfigurationError where a port, a directory or a secret is unusable."""

    def __init__(self, settings: CollectorSettings) -> None:
        address = store_address(settings)
        self._sockets = [
            bind(settings.host, settings.collector_port, "TOLLKEEPER_COLLECTOR_PORT"),
            bind(settings.host, settings.collector_health_port, "TOLLKEEPER_COLLECTOR_HEALTH_PORT"),
        ]
        counters = Counters()
        log = SegmentLog(
            settings.spool_directory,
            max_bytes=settings.spool_max_bytes,
            fsync=settings.spool_fsync,
            retain_bytes=settings.spool_retain_bytes,
        )
        self._spool = Spool(log)
        dead_letters = DeadLetters(
            settings.spool_directory, max_bytes=settings.dead_letter_max_bytes, counters=counters
        )
        self._receiving = Receiving(settings, self._spool, counters)
        store = FollowingStore(address, StoreLocation(settings.data))
        is_synced = settings.spool_fsync == "always"
        plan_file = PlanFile(settings.spool_directory / "insert.plan", is_synced=is_synced)
        window = TokenWindow(store, settings.spool_directory / "insert.window", is_synced=is_synced)
        self._exporter = ClickHouseExporter(
            self._spool,
            InsertPlanner(self._spool, plan_file, BatchClaims(store), counters, window),
            self._receiving.pipeline.process,
            store,
            arrow_batch,
            dead_letters,
            counters,
            random.Random(),
            StoreTurns(settings.data),
        )
        health = Health(
            CollectorState(self._spool, self._exporter, dead_letters, counters),
            DetailAccess(settings.metrics_token, settings.data),
        )
        self._listeners = [
            Listener(bound, app, settings.bounds())
            for bound, app in zip(self._sockets, (self._receiving.http_app(), health.app()), strict=True)
        ]

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
        self._receiving.start()
        self._exporter.start()
        await serve_until_signal(self._listeners)
        self._receiving.stop()
        ended = self._exporter.stop(FLUSH_SECONDS)
        _log.info("collector stopped waiting_bytes=%d", self.waiting)
        if ended:
            self._spool.close()  # else the process's end closes it: a late release must not follow a new owner's

    @property
    def waiting(self) -> int:
        """Bytes in the spool that the store does not have."""
        return self._spool.pending_bytes


def store_address(settings: CollectorSettings) -> StoreAddress:
    """Give the store's address. A password that is not set is the one the embedded store shares by secret file."""
    return StoreAddress.resolve(
        settings.store_url,
        settings.store_database,
        "writer",
        SecretFiles(settings.data / "secrets"),
        user=settings.store_user,
        password=None if settings.store_password is None else settings.store_password.get_secret_value(),
    )
