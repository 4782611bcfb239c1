"""Builds the data plane from its settings and runs it until it is told to stop."""

import asyncio
import contextlib
import gc
import logging
import signal
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from backends.llm.engine_host import Taking
from backends.llm.engine_hosts import EngineHosts
from backends.llm.engine_target import EngineTarget
from backends.secret_files import SecretFiles
from backends.tls import client_tls
from contracts.configuration import Snapshot
from contracts.errors import TollkeeperError
from contracts.ids import uuid7
from gateway.admission import Admission
from gateway.app_parts import budget_publisher, counter_store, source_of, span_emitter, window_file
from gateway.batches.service import BatchService
from gateway.clock import Clock
from gateway.config_file import FileSource
from gateway.counting import TokenEstimator
from gateway.directory import Directory, RefusedSnapshot
from gateway.dispatch import Dispatcher
from gateway.endpoints import Endpoints
from gateway.engine_records import JournalledEngineRecords
from gateway.guard import Guard
from gateway.identity.authentication import Authenticator
from gateway.journal import Journal
from gateway.kept_objects import KeptObjects
from gateway.lane.quick_lane import QuickLane
from gateway.limiter import Limiter
from gateway.limits.budget_ledger import BudgetLedger
from gateway.limits.budget_watch import BudgetWatch
from gateway.messages.count_tokens import CountTokens
from gateway.messages.operation import MESSAGES
from gateway.metrics.endpoint import MetricsEndpoint
from gateway.metrics.loop_lag import LoopLag
from gateway.metrics.page import MetricsPage, Sources
from gateway.metrics.request_counts import RequestCounts
from gateway.metrics.service import MetricsService
from gateway.operations import OPERATIONS, Operation
from gateway.output_estimates import OutputEstimator
from gateway.provider_hosts import ProviderHosts
from gateway.recorder import Recorder
from gateway.responses.keeper import ResponseKeeper
from gateway.responses.operation import responses
from gateway.responses.resource import ResponseResource
from gateway.routing import Router
from gateway.scheduling.engine_rooms import EngineRooms
from gateway.scheduling.pool_queues import PoolQueues
from gateway.secure_listener import ListenerContext
from gateway.server import HttpServer
from gateway.serving_tasks import ServingTasks
from gateway.settings import GatewaySettings
from gateway.settlement import Settlement
from gateway.shipper import Shipper
from gateway.stages import Stages
from gateway.targets import TargetRegistry

_log = logging.getLogger(__name__)

_COLLECT_EVERY_OBJECTS: Final = 20_000  # more made than freed: a few hundred requests under way


class Gateway:
    """The data plane of one process. `start`, then `stop`; `port` tells where it listens."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._clock = Clock()
        self._tls = ListenerContext(settings.tls, settings.http_limits) if settings.tls is not None else None
        secrets = SecretFiles(settings.data / "secrets")
        pepper = secrets.get_or_create("key_pepper").encode()
        source, first = source_of(settings, pepper)
        self._first = first
        self._source = source
        prepare = self._prepare if isinstance(source, FileSource) else None
        self.directory = Directory(source, first, self._clock, settings.stale_keys_seconds, self._on_change, prepare)
        self._reloading: asyncio.Task[None] | None = None
        directory = settings.own("journal")
        self.journal = Journal(directory, max_bytes=settings.journal_max_bytes, when_full=settings.journal_when_full)
        name = settings.name
        self.engine_records = JournalledEngineRecords(self.journal)
        engine_tls = client_tls(settings.engine_tls) if settings.engine_tls.paths else None
        taking = Taking(name, self.engine_records, wants_kv=settings.kv_events, tls=engine_tls)
        self._engines = EngineHosts(taking)
        self._providers = ProviderHosts(settings.providers_address, name)
        self.targets = TargetRegistry(
            {"engine": partial(EngineTarget, hosts=self._engines), "litellm": self._providers.target}
        )
        self._spans = span_emitter(settings, name)
        counts = RequestCounts(settings.metrics_tenants) if settings.metrics else None
        self.recorder = Recorder(self.journal, name, self._spans.emit if self._spans else None, counts)
        self.admission = Admission(self.journal, settings.max_concurrent)
        self._publisher = budget_publisher(settings, name)
        self.ledger = BudgetLedger(settings.own("budgets"), self.journal)
        self.journal.before_release = self.ledger.flush
        self._watch = BudgetWatch(self.ledger, self._publisher.publish if self._publisher else None)
        self.counters = counter_store(settings, name, self._watch)
        self.ledger.restore(self.counters.open_budget, first.budgets, self._clock.wall_ns())
        self._windows = window_file(settings, self.counters, first)
        inputs = TokenEstimator()
        rooms = EngineRooms(self._engines, lambda: self.directory.snapshot, self._clock)
        self.queues = PoolQueues(self._clock, rooms.room_of)
        self.queues.sync(first)
        salt_secret = secrets.get_or_create("cache_salt").encode()
        limits = settings.authentication_limits
        authenticator = Authenticator(self.directory, pepper, salt_secret, self._clock, limits)
        self._authenticator = authenticator
        stages = Stages(
            directory=self.directory,
            authenticator=authenticator,
            admission=self.admission,
            guard=Guard(),
            router=Router(),
            targets=self.targets,
            settlement=Settlement(inputs),
            limiter=Limiter(self.counters, inputs, OutputEstimator(), self._clock),
            queues=self.queues,
            recorder=self.recorder,
        )
        self._dispatcher = Dispatcher(stages, self._clock)
        self._serving = ServingTasks()
        self._lane = QuickLane(stages, self._dispatcher, self._clock, self._serving.start)
        self.kept = KeptObjects(settings.objects_address)
        self._responses = ResponseKeeper(
            self.kept, settings.responses_keep_days * 86_400, self._clock, settings.responses_max_bytes
        )
        self._metrics = None if counts is None else self._metrics_service(counts)
        operations = (*OPERATIONS, MESSAGES, responses(self._responses))
        self.batches = BatchService(
            settings.batch_settings, self.kept, operations, self._dispatcher, self.directory, self._clock
        )
        self._endpoints = self._endpoints_for(operations, CountTokens(stages.guard, self.targets, inputs))
        self._server = HttpServer(self._endpoints.handle, settings.http_limits, self._tls, self._endpoints.shape_at)
        self._shipper: Shipper | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def _endpoints_for(self, operations: Sequence[Operation], counting: CountTokens) -> Endpoints:
        return Endpoints(
            self._dispatcher,
            self._lane,
            self._serving,
            self.directory,
            self._authenticator,
            self.health,
            self._metrics.on_the_data_plane if self._metrics else None,
            operations=operations,
            resources=(counting, ResponseResource(self._responses), *self.batches.resources),
        )

    async def start(self) -> None:
        """Build targets, bind the port, begin polling and shipping."""
        self.targets.sync(self._first, strict=self._settings.gateway_config is not None)
        await self.counters.start()
        if self._metrics is not None:
            await self._metrics.start(self._settings.host)
        shares_port = self._settings.workers > 1
        await self._server.start(self._settings.host, self._settings.gateway_port, shares_port=shares_port)
        self._tasks.append(asyncio.create_task(self.directory.run(), name="directory"))
        self._tasks.append(asyncio.create_task(self._authenticator.run(), name="token issuers"))
        self._tasks.append(asyncio.create_task(self.counters.run(), name="counters"))
        self._tasks.append(asyncio.create_task(self._watch.run(), name="budgets"))
        self._tasks.append(asyncio.create_task(self._responses.run(), name="kept responses"))
        self.batches.start()
        if self._windows is not None:
            self._tasks.append(asyncio.create_task(self._windows.run(), name="windows"))
        if self._settings.ships_to:
            self._shipper = Shipper(
                self.journal,
                self._settings.own("journal"),
                self._settings.ships_to,
                lambda: uuid7(time.time_ns()),
            )
            self._tasks.append(asyncio.create_task(self._shipper.run(), name="shipper"))
        _log.info("gateway ready", extra={"port": self.port, "models": len(self.directory.snapshot.models)})

    async def stop(self) -> None:
        """Let requests finish, ship what can be shipped, close everything."""
        drain_seconds = self._settings.drain_seconds
        await asyncio.gather(self._server.stop(drain_seconds), self.batches.stop(drain_seconds))
        await self._serving.settled()
        if self._metrics is not None:
            await self._metrics.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._shipper is not None:
            await self._shipper.flush(within_seconds=2.0)
        await self.kept.close()
        await self.targets.close()
        await self.directory.close()
        await self._watch.tell()
        if self._windows is not None:
            await self._windows.write()
        await self.counters.close()
        self.ledger.close()
        if self._publisher is not None:
            self._publisher.close()
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)
        self.journal.close()

    def reload(self) -> None:
        """Read again at once what is read again anyway when it changes: the configuration and the certificate."""
        if self._tls is not None:
            self._tls.refresh(at_once=True)
        if isinstance(self._source, FileSource):
            self._source.ask()
        self._reloading = asyncio.create_task(self.directory.refresh(), name="reload")

    @property
    def port(self) -> int:
        """Give the port the data plane listens on."""
        return self._server.port

    def is_engine_ready(self, host: str) -> bool:
        """Say whether an engine host answers with its models loaded."""
        status = self._engines.status().get(host)
        return status is not None and status.state == "ready"

    def health(self) -> dict[str, object]:
        """Give what GET /ready shows: is usage safe, are keys fresh, what waits."""
        problems = []
        if not self.admission.has_journal_room:
            problems.append("journal_full")
            problems += ["disk_full"] if self.journal.is_disk_full else []
        if self.directory.is_too_old:
            problems.append("control_unavailable")
        return {
            "status": "not_ready" if problems else "ready",
            "problems": problems,
            "degraded": self._degraded(),
            "revision": self.directory.snapshot.revision,
            "control_plane": "away" if self.directory.is_source_away else "reachable",
            "collector": self._collector_state(),
            "in_flight": self.admission.in_flight,
            "counters": self.counters.status(),
            "queues": self.queues.state(),
            "budget_totals": "not_written" if self.ledger.is_broken else "written",
            "budget_states": "away" if self._watch.is_away else "published" if self._publisher else "kept",
            "connections": self._server.connection_count,
            "configuration": self.directory.refused or "current",
            "certificate": "none" if self._tls is None else self._tls.fault or "current",
            "journal_bytes": self.journal.pending_bytes,
            "journal_max_bytes": self.journal.max_bytes,
            "journal_corrupt_entries": self.journal.corrupt_entries,
            "recorded_requests": self.recorder.recorded_requests,
            "unauthenticated_requests": self.recorder.unauthenticated_requests,
            **self._authenticator.status(),
            "unrecorded_rejections": self.recorder.unrecorded_rejections,
            "dropped_records": self.journal.dropped_records,
            "dead_letter_records": self._shipper.dead_letters.records if self._shipper else 0,
            "dead_letter_bytes": self._shipper.dead_letters.bytes if self._shipper else 0,
            "batches": self._batch_health(),
            "misconfigured": self.directory.snapshot.misconfigured,
            "misconfigured_targets": self.targets.broken,
            **self._engine_health(),
            "provider_host": self._providers.health(),
        }

    def _degraded(self) -> list[str]:
        """Give what is not as it should be and keeps nobody from being served: for alerts."""
        counters = self.counters.status()
        found = ["counters_away"] if counters.get("reachable") is False else []
        found += ["control_away"] if self.directory.is_source_away else []
        found += ["budget_totals_not_written"] if self.ledger.is_broken else []
        found += ["budget_states_away"] if self._watch.is_away else []
        found += ["batches_away"] if self.batches.state.is_broken else []
        found += ["configuration"] if self.directory.refused else []
        found += ["certificate"] if self._tls is not None and self._tls.fault else []
        return found + (["misconfigured"] if self.directory.snapshot.misconfigured or self.targets.broken else [])

    def _batch_health(self) -> dict[str, int]:
        state = self.batches.state
        return {"in_progress": state.batches, "lines_in_flight": state.serving, "lines_waiting": state.waiting}

    def _engine_health(self) -> dict[str, object]:
        """Give how the engine hosts are. One that is away keeps only its own models from being served."""
        return {
            "engines": {
                name: {
                    "state": host.state,
                    "detail": host.detail,
                    "latency_ms": None if host.latency_ns is None else round(host.latency_ns / 1e6, 3),
                    "engine": host.engine,
                    "models": host.models,
                    "requests": host.requests,
                    "unreadable_step_records": host.unreadable_step_records,
                }
                for name, host in self._engines.status().items()
            },
            "step_records": self.engine_records.step_records,
            "kv_records": self.engine_records.kv_records,
            "dropped_kv_records": self.engine_records.dropped_kv_records,
        }

    def _metrics_service(self, counts: RequestCounts) -> MetricsService:
        settings, loop_lag = self._settings, LoopLag(self._clock)
        sources = Sources(
            gateway=settings.name,
            clock=self._clock,
            requests=counts,
            recorder=self.recorder,
            admission=self.admission,
            queues=self.queues,
            counters=self.counters,
            journal=self.journal,
            directory=self.directory,
            loop_lag=loop_lag,
            shipper=lambda: self._shipper,
            engines=self._engines.status,
            connection_count=lambda: self._server.connection_count,
            open_grants=lambda: self._dispatcher.open_grants + self._lane.open_grants,
            batches=lambda: self.batches.state,
        )
        endpoint = MetricsEndpoint(MetricsPage(sources, settings.metrics_budgets), settings.metrics_token)
        return MetricsService(endpoint, loop_lag, settings.http_limits, settings.own_metrics_port, self._tls)

    def _collector_state(self) -> str:
        if self._shipper is None:
            return "none"
        return "away" if self._shipper.failures_in_a_row else "reachable"

    def _prepare(self, newer: Snapshot) -> None:
        """Take a newer file's targets, all or none. Raises RefusedSnapshot where one of them cannot be used."""
        try:
            self.targets.sync(newer, strict=True)
        except TollkeeperError as error:
            raise RefusedSnapshot(error.message) from error
        _log.info("configuration reloaded", extra={"revision": newer.revision, "models": len(newer.models)})

    def _on_change(self) -> None:
        self.targets.sync(self.directory.snapshot)
        self.queues.sync(self.directory.snapshot)


def _spare_the_collector() -> None:
    """Let the cyclic garbage collector look rarely, and never at what was there before the first request.

    A request leaves no cycle behind: what it used is freed as it ends. By default the collector would still walk
    through all requests under way every 700 objects, and through the configuration every now and then, for nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY_OBJECTS, 20, 20)


async def run(settings: GatewaySettings) -> None:
    """Run the data plane until SIGTERM or SIGINT."""
    gateway = Gateway(settings)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, gateway.reload)
    try:
        await gateway.start()
        _spare_the_collector()
        await stopped.wait()
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await gateway.stop()
