"""Builds the data plane from its settings and runs it until it is stopped."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from backends.channels.inward import read_networks
from backends.llm.encoding_room import EncodingRoom
from backends.llm.host.engine_hosts import EngineHosts
from backends.llm.host.engine_target import EngineTarget
from backends.llm.host.host_connection import Taking
from backends.network.detail_access import DetailAccess
from backends.network.tls import client_tls
from backends.secrets.secret_files import SecretFiles
from backends.segment_log.disk_room import WatchedDisk
from contracts.api.media import MEDIA_OPERATIONS
from contracts.errors import TollkeeperError
from contracts.recording.ids import uuid7
from contracts.serving.configuration import Snapshot
from gateway.apis.batches.service import BatchService
from gateway.apis.endpoints import Endpoints, ServingTasks
from gateway.apis.files.lazy_objects_database import LazyObjectsDatabase
from gateway.apis.gemini.operation import GENERATE_CONTENT
from gateway.apis.gemini.resource import GEMINI_COUNTING, GeminiModels
from gateway.apis.messages.count_tokens import CountTokens
from gateway.apis.messages.operation import MESSAGES
from gateway.apis.operations import OPERATIONS, Operation
from gateway.apis.resource import Resource
from gateway.apis.responses.compact import COMPACT
from gateway.apis.responses.keeper import ResponseKeeper
from gateway.apis.responses.operation import responses, responses_counting
from gateway.apis.responses.resource import ResponseResource
from gateway.cache.answer_cache import AnswerCache
from gateway.config.directory import Directory, RefusedSnapshot
from gateway.config.discovery import DiscoveringSource
from gateway.config.file import FileSource
from gateway.config.targets import TargetRegistry
from gateway.guardrails.detector_dependencies import DetectorDependencies
from gateway.guardrails.guardrails import Guardrails, let_go
from gateway.guardrails.questions import LazyQuestions
from gateway.identity.authentication import Authenticator
from gateway.limits.queue.engine_rooms import EngineRooms
from gateway.limits.queue.pool_queue import PoolQueues
from gateway.mcp.resource import McpResource
from gateway.mcp.servers import McpServers
from gateway.observability.metrics.endpoint import MetricsEndpoint
from gateway.observability.metrics.loop_lag import LoopLag
from gateway.observability.metrics.page import MetricsPage, Sources
from gateway.observability.metrics.request_counts import RequestCounts
from gateway.observability.metrics.service import MetricsService
from gateway.observability.process_watch import ProcessWatch, read_addresses
from gateway.observability.provider_hosts import ProviderHosts
from gateway.observability.readiness import Readiness
from gateway.process.parts import (
    abuse_service,
    caller_address,
    health_service,
    key_pepper,
    rollout_board,
    sealed_opener,
    shared_answers,
    source_of,
    token_store,
)
from gateway.process.settings import GatewaySettings
from gateway.records.accounting import Accounting
from gateway.records.engine_records import JournalledEngineRecords
from gateway.records.shipper import Shipper
from gateway.request.clock import Clock
from gateway.request.dispatch import Dispatcher
from gateway.request.guard import Guard
from gateway.request.stages import Stages
from gateway.routing.attempts.caller import Caller
from gateway.routing.replicas.cache_mirror import CacheMirror
from gateway.routing.replicas.router import Router
from gateway.routing.rollouts.rollouts import Rollouts
from gateway.routing.routes.guide import RouteGuide
from gateway.routing.semantic.service import SemanticService
from gateway.wire.large_bodies import LargeBodies
from gateway.wire.listener_context import ListenerContext
from gateway.wire.server import HttpServer

_log = logging.getLogger(__name__)

_THREADS: Final = 32
_COLLECT_EVERY_OBJECTS: Final = 20_000  # more made than freed: a few hundred requests under way
# Blocks of this size and more have pages of their own, which go back to the system when they are freed. By default
# glibc keeps them once a larger one was freed: a gateway would stay as large as its largest request made it.
_LARGE_BLOCK_BYTES: Final = 1 << 20
_M_MMAP_THRESHOLD: Final = -3


class Gateway:
    """The data plane of one process. Call `start`, then `stop`; `port` is where it listens."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._clock = Clock()
        self._tls = ListenerContext(settings.tls) if settings.tls is not None else None
        secrets = SecretFiles(settings.data / "secrets")
        pepper = key_pepper(settings, secrets)
        self._detail_access = DetailAccess(settings.metrics_token, settings.data)
        source, stated, unseen_seconds = source_of(settings, pepper)
        self._source = source
        found = DiscoveringSource(source, stated, settings.kubernetes_api)
        self._discovery = found.discovery
        self._found = found
        first = self._first = found.first
        prepare = self._prepare if isinstance(source, FileSource) else None
        self.directory = Directory(found, first, self._clock, settings.stale_keys_seconds, self._on_change, prepare)
        if unseen_seconds is not None:
            self.directory.begin_away(unseen_seconds)
        self._reloading: asyncio.Task[None] | None = None
        self._letting_go: asyncio.Task[None] | None = None
        self._books = books = Accounting(settings, first, self._clock)
        self.journal, self.recorder, self.admission = books.journal, books.recorder, books.admission
        self.ledger, self.counters = books.ledger, books.counters
        self._reach_models(settings)
        salt_secret = self._salt_secret = secrets.get_or_create("cache_salt").encode()
        limits = settings.authentication_limits
        self._authenticator = Authenticator(self.directory, pepper, salt_secret, self._clock, limits)
        stages = self._stages(settings)
        self._serving = ServingTasks()
        self._dispatcher = Dispatcher(stages, self._clock, self._serving.start)
        self.rollouts.shadows.serve_with(self._dispatcher)
        self.ledger.before_flush = self._dispatcher.endings.close
        self.kept = LazyObjectsDatabase(settings.objects_address)
        self._responses = ResponseKeeper(
            self.kept, settings.responses_keep_days * 86_400, self._clock, settings.responses_max_bytes
        )
        self._metrics = None if books.counts is None else self._metrics_service(books.counts)
        operations = (*OPERATIONS, MESSAGES, GENERATE_CONTENT, COMPACT, responses(self._responses))
        self.batches = BatchService(
            settings.batch_settings,
            self.kept,
            tuple(one for one in operations if one.name not in MEDIA_OPERATIONS),
            self._dispatcher,
            self.directory,
            self._clock,
        )
        counting = (
            CountTokens(stages, books.inputs),
            CountTokens(stages, books.inputs, responses_counting(operations[-1])),
            CountTokens(stages, books.inputs, GEMINI_COUNTING),
            GeminiModels(),
        )
        mcp = McpResource(stages, self.mcp, self._clock)
        self._endpoints = self._endpoints_for(operations, (*counting, mcp))
        self._server = HttpServer(self._endpoints.handle, settings.http_limits, self._tls, self._endpoints.shape_at)
        self._shipper: Shipper | None = None
        self._processes = ProcessWatch(read_addresses(settings.watched_processes))
        self._readiness = self._looked_at()
        self._tasks: list[asyncio.Task[None]] = []
        self._draining: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def _reach_models(self, settings: GatewaySettings) -> None:
        """Build what leads to whatever answers: engine hosts, provider hosts, targets, and their health."""
        name = settings.name
        self.engine_records = JournalledEngineRecords(self.journal)
        engine_tls = client_tls(settings.engine_tls) if settings.engine_tls.paths else None
        mirror = CacheMirror()
        hung_seconds = settings.engine_hung_restart_seconds
        taking = Taking(name, self.engine_records, settings.kv_events, mirror, engine_tls, hung_seconds)
        self._encoding = EncodingRoom(settings.encoding_bounds)
        self._engines = EngineHosts(taking, room=self._encoding)
        self._providers = ProviderHosts(settings.providers_address, name, hung_seconds)
        self.targets = TargetRegistry(
            {"engine": partial(EngineTarget, hosts=self._engines), "litellm": self._providers.target},
            sealed_opener(settings),
            settings.reference_rules,
        )
        self.mcp = McpServers(
            self._clock,
            sealed_opener(settings),
            settings.reference_rules,
            str(settings.tools_address),
            token_store(settings),
        )
        self.router = Router(
            self._clock, self.targets, self._engines, mirror, sample_share=settings.routing_sample_share
        )
        self._health = health_service(settings, name, self._clock)
        self.health_book = self._health.book
        self.router.away_in = self.health_book.away_in
        self.health_book.sync(self._first)
        rooms = EngineRooms(self._engines, lambda: self.directory.snapshot, self._clock)
        self.queues = PoolQueues(self._clock, rooms.room_of)
        self.queues.sync(self._first)

    def _stages(self, settings: GatewaySettings) -> Stages:
        """Build what a request passes through."""
        books = self._books
        self._semantic = SemanticService(settings.embedder_threads, settings.semantic_timeout_ms)
        self._answers = AnswerCache(
            settings.answer_cache_max_bytes,
            books.limiter,
            books.settlement,
            self._clock,
            self._semantic.embedder,
            shared_answers(settings, self._salt_secret),
        )
        self.rollouts = Rollouts(
            rollout_board(settings, settings.name), books.limiter, self._clock, self._semantic.embedder
        )
        self.abuse = abuse_service(settings, self._clock)
        self._questions = LazyQuestions(read_networks(settings.guardrails_inward))
        self.guardrails = Guardrails(self._guardrail_means(), caller_address(settings))
        if settings.gateway_config is not None:
            self.guardrails.check(self._first)
        self.guardrails.sync(self._first)
        return Stages(
            directory=self.directory,
            authenticator=self._authenticator,
            admission=self.admission,
            guard=Guard(),
            router=self.router,
            targets=self.targets,
            caller=Caller(self.targets, self._clock, self.health_book, note_sent=self.recorder.note_sent),
            settlement=books.settlement,
            limiter=books.limiter,
            queues=self.queues,
            recorder=self.recorder,
            answers=self._answers,
            guide=RouteGuide(
                books.limiter,
                self._clock,
                settings.region,
                self._semantic.reader,
                self.health_book,
                self.router.least_wait_ns,
                self.rollouts.arms,
            ),
            rollouts=self.rollouts,
            guardrails=self.guardrails,
            bodies=LargeBodies(self._encoding, settings.max_body_fields),
        )

    def _guardrail_means(self) -> DetectorDependencies:
        """Return the dependencies of detectors."""
        settings = self._settings
        return DetectorDependencies(
            clock=self._clock,
            pepper=self._salt_secret,
            embedder=self._semantic.embedder,
            webhook_secret=SecretFiles(settings.data / "secrets").get_or_create("webhook_secret").encode(),
            questions=self._questions,
            incidents=self.abuse.book,
            rules=settings.reference_rules,
        )

    def _endpoints_for(self, operations: Sequence[Operation], resources: Sequence[Resource]) -> Endpoints:
        return Endpoints(
            self._dispatcher,
            self._serving,
            self.directory,
            self._authenticator,
            self.health,
            self._detail_access,
            self._metrics.on_the_data_plane if self._metrics else None,
            operations=operations,
            resources=(*resources, ResponseResource(self._responses, self._books.limiter), *self.batches.resources),
        )

    async def start(self) -> None:
        """Build targets, bind the port, begin polling and shipping."""
        self.targets.sync(self._first, strict=self._settings.gateway_config is not None)
        self.mcp.sync(self._first, strict=self._settings.gateway_config is not None)
        self._semantic.sync(self._first.routes)
        self._answers.sync(self._first)
        self.rollouts.sync(self._first.rollouts)
        await self.counters.start()
        if self._metrics is not None:
            await self._metrics.start(self._settings.host)
        shares_port = self._settings.workers > 1
        await self._server.start(self._settings.host, self._settings.gateway_port, shares_port=shares_port)
        self._tasks.append(asyncio.create_task(self.directory.run(), name="directory"))
        loop = asyncio.get_running_loop()
        self._found.on_change = partial(_soon, loop, self._look_again)
        self._tasks.append(asyncio.create_task(self._authenticator.run(), name="token issuers"))
        for name, running in self._books.running().items():
            self._tasks.append(asyncio.create_task(running, name=name))
        self._tasks.append(asyncio.create_task(self._processes.run(), name="other processes"))
        self._tasks.append(asyncio.create_task(self._health.run(), name="health of targets"))
        self._tasks.append(asyncio.create_task(self._responses.run(), name="kept responses"))
        self._tasks.append(asyncio.create_task(self.rollouts.watching.run(), name="rollouts"))
        self._tasks.append(asyncio.create_task(self.abuse.run(), name="abuse"))
        self.batches.start()
        if self._settings.ships_to:
            self._shipper = Shipper(
                self.journal,
                self._settings.own("journal"),
                self._settings.ships_to,
                lambda: uuid7(time.time_ns()),
                self._settings.record_key,
            )
            self._tasks.append(asyncio.create_task(self._shipper.run(), name="shipper"))
        _log.info("gateway ready", extra={"port": self.port, "models": len(self.directory.snapshot.models)})

    def drain(self, *, notice_seconds: float | None = None) -> "asyncio.Task[None]":
        """Refuse new requests from now on, and finish those in progress within the drain time. Repeated calls return
        the same task.

        The port stays open for `notice_seconds`; `None`: until no request is in progress.
        """
        if self._draining is None:
            self._endpoints.is_draining = True
            if self._tasks:  # else it has never served
                _log.info("draining", extra={"requests": self.admission.in_flight})
            self._draining = asyncio.create_task(self._drain(notice_seconds), name="drain")
        return self._draining

    def hurry(self) -> None:
        """End the drain time now: answers in progress are cut."""
        self._hurry.set()

    async def _drain(self, notice_seconds: float | None) -> None:
        drain_seconds = self._settings.drain_seconds
        await asyncio.gather(
            self._server.stop(drain_seconds, notice_seconds=notice_seconds, hurry=self._hurry),
            self.batches.stop(drain_seconds),
        )
        await self.rollouts.shadows.close()  # nobody waits for copies, and no new ones arise
        await self._serving.settled()

    async def stop(self, *, notice_seconds: float = 0.0) -> None:
        """Drain, ship the remaining records if possible, and close everything."""
        await self.drain(notice_seconds=notice_seconds)
        if self._metrics is not None:
            await self._metrics.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.rollouts.close()
        await self.guardrails.close()
        await self.abuse.close()
        await self._questions.close()
        if self._shipper is not None:
            await self._shipper.flush(within_seconds=2.0)
        await self._semantic.close()
        await self._answers.close()
        await self.kept.close()
        await self.mcp.close()
        await self.targets.close()
        await self.directory.close()
        await self._health.close()
        await self._books.close()

    def reload(self) -> None:
        """Reload the configuration and the certificate now, without waiting for the next check."""
        if self._tls is not None:
            self._tls.refresh(at_once=True)
        if isinstance(self._source, FileSource):
            self._source.ask()
        self._reloading = asyncio.create_task(self.directory.refresh(), name="reload")

    def _look_again(self) -> None:
        """Apply discovered or lost endpoints at once instead of at the next poll."""
        if self._draining is None:
            self._reloading = asyncio.create_task(self.directory.refresh(), name="endpoints")

    @property
    def port(self) -> int:
        """Return the port on which the data plane listens."""
        return self._server.port

    def is_engine_ready(self, host: str) -> bool:
        """Return whether an engine host answers with its models loaded."""
        status = self._engines.status().get(host)
        return status is not None and status.state == "ready"

    def health(self) -> dict[str, object]:
        """Return the state that GET /ready shows."""
        return self._readiness.page()

    def _looked_at(self) -> Readiness:
        return Readiness(
            accounting=self._books,
            directory=self.directory,
            authenticator=self._authenticator,
            queues=self.queues,
            targets=self.targets,
            health_book=self.health_book,
            router=self.router,
            rollouts=self.rollouts,
            answers=self._answers,
            semantic=self._semantic,
            mcp=self.mcp,
            batches=self.batches,
            engines=self._engines,
            engine_records=self.engine_records,
            providers=self._providers,
            processes=self._processes,
            tls=self._tls,
            shipper=lambda: self._shipper,
            connection_count=lambda: self._server.connection_count,
            is_draining=lambda: self._endpoints.is_draining,
            disks=(WatchedDisk("journal", "TOLLKEEPER_DATA", self._settings.data),),
        )

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
            processes=lambda: {**self._processes.states, **self._providers.process_states()},
            connection_count=lambda: self._server.connection_count,
            open_grants=lambda: self._dispatcher.open_grants,
            batches=lambda: self.batches.state,
            answers=self._answers.state,
            semantic=self._semantic,
            health=self.health_book,
            router=self.router,
            mcp=self.mcp,
            definition_findings=self.guardrails.definition_findings,
        )
        endpoint = MetricsEndpoint(MetricsPage(sources, settings.metrics_budgets), self._detail_access)
        return MetricsService(endpoint, loop_lag, settings.http_limits, settings.own_metrics_port, self._tls)

    def _prepare(self, newer: Snapshot) -> None:
        """Accept a newer file's targets, all or none. Raises RefusedSnapshot if one of them cannot be used."""
        try:
            self.guardrails.check(newer)
            self.targets.sync(newer, strict=True)
            self.mcp.sync(newer, strict=True)
        except TollkeeperError as error:
            raise RefusedSnapshot(error.message) from error
        _log.info("configuration reloaded", extra={"revision": newer.revision, "models": len(newer.models)})

    def _on_change(self) -> None:
        self.targets.sync(self.directory.snapshot)
        self.mcp.sync(self.directory.snapshot)
        self.queues.sync(self.directory.snapshot)
        self.router.sync(self.directory.snapshot)
        self._semantic.sync(self.directory.snapshot.routes)
        self._answers.sync(self.directory.snapshot)
        self.health_book.sync(self.directory.snapshot)
        self.rollouts.sync(self.directory.snapshot.rollouts)
        gone = self.guardrails.sync(self.directory.snapshot)
        if gone:
            self._letting_go = asyncio.create_task(let_go(gone), name="guardrails that are gone")


def _spare_the_collector() -> None:
    """Make the cyclic garbage collector run rarely, and never on objects from before the first request.

    A request leaves no cycles: its objects are freed when it ends. By default the collector would traverse all requests
    in progress every 700 objects, and the configuration now and then, without effect.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY_OBJECTS, 20, 20)


async def run(settings: GatewaySettings, tell_started: Callable[[], None] = lambda: None) -> None:
    """Run the data plane until SIGTERM or SIGINT; a second signal ends the draining. Report when it serves.

    SIGUSR1 drains it, and leaves it running, so that engine hosts that stop earlier can still deliver their records.
    """
    loop = asyncio.get_running_loop()
    # More threads than a hung database can hold: what publishes to it blocks one each, and prompts need theirs.
    loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="gateway"))
    gateway = Gateway(settings)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: gateway.hurry() if stopped.is_set() else stopped.set())
    loop.add_signal_handler(signal.SIGHUP, gateway.reload)
    loop.add_signal_handler(signal.SIGUSR1, gateway.drain)
    try:
        await gateway.start()
        tell_started()
        _spare_the_collector()
        await stopped.wait()
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await gateway.stop(notice_seconds=settings.drain_notice_seconds)


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call on the loop, from another thread; do nothing if the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
