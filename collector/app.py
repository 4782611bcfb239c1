"""Builds the collector from its settings and runs it. Everything that is shared is made here, once."""

import logging
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from backends.secret_files import SecretFiles
from backends.segments import SegmentLog
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from collector.counters import Counters
from collector.dead_letters import DeadLetters
from collector.exporters.clickhouse import ClickHouseExporter
from collector.health import Health
from collector.pipeline import Pipeline
from collector.processors.logs import LogsProcessor
from collector.processors.spans import SpansProcessor
from collector.receivers.bodies import InflightBytes
from collector.receivers.otlp_http import BodyLimits, OtlpHttpReceiver
from collector.servers import Listener, bind, serve_until_signal
from collector.settings import CollectorSettings
from collector.spool import Spool

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
        pipeline = Pipeline({"logs": LogsProcessor(), "traces": SpansProcessor()}, self._spool, counters)
        self._exporter = ClickHouseExporter(
            self._spool,
            pipeline.process,
            StoreClient(address),
            arrow_batch,
            dead_letters,
            counters,
            random.Random(),
        )
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="receiver")
        limits = BodyLimits(
            settings.collector_max_body_bytes,
            settings.collector_max_decompressed_bytes,
            settings.collector_body_timeout_seconds,
        )
        inflight = InflightBytes(settings.collector_max_inflight_bytes)
        receiver = OtlpHttpReceiver(pipeline, counters, limits, inflight, self._executor)
        health = Health(self._spool, self._exporter, dead_letters, counters)
        self._listeners = [
            Listener(bound, app) for bound, app in zip(self._sockets, (receiver.app(), health.app()), strict=True)
        ]

    async def run(self) -> None:
        """Receive and export until SIGTERM or SIGINT; then flush for at most five seconds."""
        otlp, health = (bound.getsockname()[1] for bound in self._sockets)
        _log.info("collector started otlp_http_port=%d health_port=%d waiting_bytes=%d", otlp, health, self.waiting)
        self._exporter.start()
        await serve_until_signal(self._listeners)
        self._executor.shutdown()
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
