"""The parts of a gateway that are others, or none at all, by its settings."""

import time
from random import random
from typing import TYPE_CHECKING

from backends.counters.address import CountersAddress
from contracts.configuration import Snapshot
from gateway.attempts.health_book import HealthBook
from gateway.attempts.health_service import HealthService
from gateway.attempts.shared_health import SharedHealth
from gateway.clock import Clock
from gateway.config_file import FileSource
from gateway.directory import SnapshotSource
from gateway.limits.budget_watch import BudgetWatch
from gateway.limits.memory_store import MemoryStore
from gateway.limits.window_file import WindowFile
from gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from gateway.budget_publisher import BudgetPublisher
    from gateway.limits.redis_store import RedisStore
    from gateway.tracing import SpanEmitter


def source_of(settings: GatewaySettings, pepper: bytes) -> tuple[SnapshotSource, Snapshot]:
    """Give where snapshots come from, and the first. Raises ConfigurationError, ControlUnavailable."""
    if settings.gateway_config is not None:
        file = FileSource(settings.gateway_config, pepper)
        return file, file.load()
    from gateway.database_source import DatabaseSource  # here: the edge deployment runs without SQLAlchemy in memory

    database = DatabaseSource(settings.database_address)
    return database, database.load()


def budget_publisher(settings: GatewaySettings, name: str) -> "BudgetPublisher | None":
    """Give what tells the control database of budgets; `None` where there is none."""
    if settings.gateway_config is not None:
        return None
    from gateway.budget_publisher import BudgetPublisher  # here: the edge deployment runs without SQLAlchemy in memory

    return BudgetPublisher(settings.database_address, name)


def counter_store(settings: GatewaySettings, name: str, watch: BudgetWatch) -> "MemoryStore | RedisStore":
    """Give where limits and budgets are counted: in this process, or in Redis."""
    if not settings.redis_url:
        return MemoryStore(watch.on_settled, watch.on_settled_late)
    from gateway.limits.redis_store import RedisStore  # here: one gateway alone needs no client

    return RedisStore(
        settings.redis_url,
        name,
        on_settled=watch.on_settled,
        on_settled_late=watch.on_settled_late,
        expected_gateways=settings.workers,
    )


def health_service(settings: GatewaySettings, name: str, clock: Clock) -> HealthService:
    """Give what keeps the health of targets: alone, or together with the other gateways at Redis."""
    book = HealthBook(clock, random)
    if not settings.redis_url:
        return HealthService(book, None)
    from backends.counters.notice_board import NoticeBoard  # here: one gateway alone needs no client

    board = NoticeBoard(CountersAddress(settings.redis_url), "tollkeeper:{away}:")
    return HealthService(book, SharedHealth(book, board, name, clock))


def window_file(settings: GatewaySettings, store: "MemoryStore | RedisStore", first: Snapshot) -> WindowFile | None:
    """Give the file of this process's windows, read in; none where Redis has them."""
    if not isinstance(store, MemoryStore):
        return None
    file = WindowFile(settings.own("windows.msgpack"), store.windows, time.time_ns)
    file.restore(store.open_window, first.limits)
    return file


def span_emitter(settings: GatewaySettings, name: str) -> "SpanEmitter | None":
    """Give what sends a span for every request; `None` where none is wanted."""
    if not settings.tracing or not settings.ships_to:
        return None
    from gateway.tracing import SpanEmitter  # here: the SDK costs memory that a gateway without tracing keeps

    return SpanEmitter(f"{settings.ships_to.rstrip('/')}/v1/traces", name)
