"""Everything that `GET /metrics` shows, collected from its sources in short steps that do not block the event loop."""

import asyncio
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Protocol

from prometheus_client import PROCESS_COLLECTOR, generate_latest

from backends.llm.host.host_connection import HostStatus
from contracts.rules.limits import Rule
from gateway.apis.batches.runner import RunnerState
from gateway.config.directory import Directory
from gateway.limits.admission import Admission
from gateway.limits.counters.base import CounterState
from gateway.limits.queue.pool_queue import PoolQueues
from gateway.mcp.servers import McpServers
from gateway.observability.metrics.cache_families import cache_families
from gateway.observability.metrics.engine_families import gpu_families, model_families, upstream_families
from gateway.observability.metrics.exposition import Family, Sample, counter, gauge, render
from gateway.observability.metrics.loop_lag import LoopLag
from gateway.observability.metrics.mcp_families import mcp_families
from gateway.observability.metrics.pool_signals import pool_families
from gateway.observability.metrics.request_counts import RequestCounts
from gateway.observability.metrics.request_families import request_families
from gateway.observability.metrics.routing_families import routing_families, semantic_families
from gateway.observability.metrics.target_families import target_families
from gateway.observability.metrics.upstream_metrics import UpstreamMetrics
from gateway.records.journal import Journal, unpack_entry
from gateway.records.recorder import Recorder
from gateway.records.shipper import Shipper
from gateway.request.clock import Clock
from gateway.routing.health.health_book import HealthBook
from gateway.routing.replicas.router import Router
from gateway.routing.semantic.service import SemanticService

_BYTES_A_TURN: Final = 4_000  # of the page written in one turn of the loop: about a millisecond
_BUDGETS_A_TURN: Final = 50
_ENGINE_STATES: Final = ("ready", "loading", "failed", "hung", "away", "incompatible")
_NANOSECONDS: Final = 1_000_000_000


class BudgetCounter(Protocol):
    """The part of a budget's counter that this page uses."""

    @property
    def rule(self) -> Rule: ...
    def state(self, now_ns: int) -> CounterState: ...


class Counters(Protocol):
    """The part of the counter store that this page uses."""

    def status(self) -> dict[str, object]: ...
    def budgets(self) -> Iterable[BudgetCounter]: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """The objects from which the metrics page reads its values."""

    gateway: str
    clock: Clock
    requests: RequestCounts
    recorder: Recorder
    admission: Admission
    queues: PoolQueues
    counters: Counters
    journal: Journal
    directory: Directory
    loop_lag: LoopLag
    shipper: Callable[[], Shipper | None]
    engines: Callable[[], Mapping[str, HostStatus]]
    processes: Callable[[], Mapping[str, str]]  # their states
    connection_count: Callable[[], int]
    open_grants: Callable[[], int]
    batches: Callable[[], RunnerState]
    health: HealthBook
    router: Router
    answers: Callable[[], Mapping[str, int]]
    semantic: SemanticService
    mcp: McpServers
    definition_findings: Mapping[tuple[str, str], int]


class MetricsPage:
    """Renders the page. `max_budgets` is how many budgets are shown, the most used ones."""

    def __init__(self, sources: Sources, max_budgets: int) -> None:
        self._sources = sources
        self._max_budgets = max_budgets
        self.upstreams = UpstreamMetrics(lambda: sources.directory.snapshot)
        self._build = {
            "version": _version(),
            "python": platform.python_version(),
            "gateway": sources.gateway,
        }

    async def rendered(self) -> bytes:
        """Return the page in Prometheus' text format. Each series is read at one moment, but not all at the same."""
        budgets = await self._most_used_budgets()
        pieces: list[bytes] = []
        waiting = 0
        for piece in render(self._families(budgets)):
            pieces.append(piece)
            waiting += len(piece)
            if waiting >= _BYTES_A_TURN:
                waiting = 0
                await asyncio.sleep(0)
        pieces.append(await asyncio.to_thread(generate_latest, PROCESS_COLLECTOR))  # it lists open files: milliseconds
        return b"".join(pieces)

    def _families(self, budgets: list[Sample]) -> Iterator[Family]:
        sources = self._sources
        yield Family("tollkeeper_build_info", "gauge", "Version information; always 1.", [(self._build, 1)])
        yield from request_families(sources.requests)
        yield gauge(
            "tollkeeper_requests_in_flight", "Admitted requests that are not settled yet.", sources.admission.in_flight
        )
        yield gauge(
            "tollkeeper_reservations_in_flight",
            "Requests with a reservation of a limit or budget.",
            sources.open_grants(),
        )
        batches = sources.batches()
        yield gauge("tollkeeper_batches_in_progress", "Batches that this gateway processes.", batches.batches)
        yield gauge("tollkeeper_batch_lines_in_flight", "Lines of these batches in progress.", batches.serving)
        yield gauge("tollkeeper_batch_lines_waiting", "Lines of these batches without a result.", batches.waiting)
        yield from self._queue_families()
        yield from self._counter_families()
        yield Family(
            "tollkeeper_budget_used_ratio",
            "gauge",
            "Share of a budget that is spent or reserved in its period: its most used counter. Most used budgets only.",
            budgets,
        )
        yield from self._record_families()
        yield from self._shipping_families()
        yield from self._engine_families()
        yield Family(
            "tollkeeper_process_up",
            "gauge",
            "Whether another process of the installation answers; no sample before its first answer.",
            [
                ({"process": name}, int(state == "up"))
                for name, state in sources.processes().items()
                if state != "unknown"
            ],
        )
        hosts = dict(self._sources.engines())
        yield from model_families(hosts)
        yield from gpu_families(hosts)
        yield from upstream_families(self.upstreams.scrapes)
        yield from pool_families(sources.directory.snapshot, self.upstreams.scrapes, self.upstreams.first_tokens)
        yield from target_families(self._sources.health)
        yield from routing_families(self._sources.router)
        yield from cache_families(self._sources.answers())
        yield from semantic_families(self._sources.semantic)
        yield from mcp_families(self._sources.mcp, self._sources.definition_findings)
        yield gauge("tollkeeper_config_revision", "Configuration in use.", sources.directory.snapshot.revision)
        yield gauge(
            "tollkeeper_control_plane_reachable",
            "Whether the configuration's source answers.",
            int(not sources.directory.is_source_away),
        )
        yield Family(
            "tollkeeper_event_loop_lag_seconds",
            "histogram",
            "Delay of the event loop in seconds, measured four times a second.",
            [({}, sources.loop_lag.histogram)],
        )
        yield gauge("tollkeeper_connections", "Open connections of clients.", sources.connection_count())

    async def _most_used_budgets(self) -> list[Sample]:
        """Return the most used budgets. A budget with a counter per subject shows the most used one, unnamed."""
        if not self._max_budgets:
            return []
        ratios: dict[str, float] = {}
        now_ns = self._sources.clock.steady_ns()
        for number, found in enumerate(self._sources.counters.budgets(), start=1):
            ratio = found.state(now_ns).used / found.rule.amount
            ratios[found.rule.id] = max(ratio, ratios.get(found.rule.id, 0.0))
            if not number % _BUDGETS_A_TURN:
                await asyncio.sleep(0)
        most = sorted(ratios.items(), key=lambda one: (-one[1], one[0]))[: self._max_budgets]
        return [({"budget": name}, ratio) for name, ratio in most]

    def _queue_families(self) -> Iterator[Family]:
        queues = list(self._sources.queues.with_spec())
        yield Family(
            "tollkeeper_queue_waiting",
            "gauge",
            "Requests waiting for a pool, by class.",
            [
                ({"pool": queue.pool, "class": priority}, count)
                for queue in queues
                for priority, count in queue.fair.shed_order.waiting_by_class().items()
            ],
        )
        yield Family(
            "tollkeeper_queue_in_flight",
            "gauge",
            "Requests in progress at a pool with a queue.",
            [({"pool": queue.pool}, queue.fair.load.in_flight) for queue in queues],
        )
        yield Family(
            "tollkeeper_queue_shed_total",
            "counter",
            "Requests shed by a queue, by class: it was full, or they had waited too long.",
            [
                ({"pool": queue.pool, "class": priority}, count)
                for queue in queues
                for priority, count in queue.fair.shed_by_class.items()
            ],
        )

    def _counter_families(self) -> Iterator[Family]:
        yield gauge(
            "tollkeeper_clock_set_seconds",
            "Seconds by which the machine's clock was set since the gateway started; limits and budgets ignore it.",
            round(self._sources.clock.set_seconds(), 3),
        )
        status = self._sources.counters.status()
        where = {"store": str(status["kind"])}
        reachable = int(bool(status.get("reachable", True)))
        yield Family(
            "tollkeeper_counters_reachable",
            "gauge",
            "Whether the counters of limits and budgets are reachable.",
            [(where, reachable)],
        )
        yield gauge("tollkeeper_counters", "Counters of limits and budgets.", _number(status.get("counters")))
        if "round_trips" in status:
            yield counter(
                "tollkeeper_counters_round_trips_total", "Round trips to Redis.", _number(status["round_trips"])
            )
            yield counter(
                "tollkeeper_counters_waits_total",
                "Requests that waited for a round trip.",
                _number(status.get("requests_with_round_trip")),
            )
            used_up = status.get("leases_used_up")
            yield gauge(
                "tollkeeper_budget_leases_used_up",
                "Hard budgets in use that refuse requests because Redis is unreachable and their lease is used up.",
                len(used_up) if isinstance(used_up, list) else 0,
            )

    def _record_families(self) -> Iterator[Family]:
        recorder, journal = self._sources.recorder, self._sources.journal
        yield counter("tollkeeper_records_total", "Requests recorded in the journal.", recorder.recorded_requests)
        yield counter(
            "tollkeeper_records_dropped_total",
            "Records of admitted requests that could not be stored: lost usage.",
            journal.dropped_records,
        )
        yield counter(
            "tollkeeper_rejections_unrecorded_total",
            "Refused requests left out of a journal without room; they used nothing.",
            recorder.unrecorded_rejections,
        )
        yield counter(
            "tollkeeper_unauthenticated_requests_total",
            "Requests without valid authentication; they are not recorded.",
            recorder.unauthenticated_requests,
        )
        content = recorder.content
        if content is not None:
            yield counter("tollkeeper_content_kept_total", "Requests whose content was stored, redacted.", content.kept)
            yield counter(
                "tollkeeper_content_dropped_total",
                "Requests whose content was dropped instead of stored: too many waited, or the journal was full.",
                content.dropped,
            )
        yield gauge(
            "tollkeeper_journal_bytes", "Bytes of records not yet acknowledged by a collector.", journal.pending_bytes
        )
        yield gauge("tollkeeper_journal_max_bytes", "Size in bytes at which admission stops.", journal.max_bytes)
        yield counter(
            "tollkeeper_journal_corrupt_entries_total",
            "Unreadable sections of the journal.",
            journal.corrupt_entries,
        )
        yield gauge(
            "tollkeeper_journal_missing_entries",
            "Records lost to damage on disk, until the journal's directory damaged/ is removed.",
            journal.missing.entries,
        )

    def _shipping_families(self) -> Iterator[Family]:
        shipper = self._sources.shipper()
        if shipper is None:
            return
        yield gauge(
            "tollkeeper_shipping_lag_seconds",
            "Age of the oldest record not yet acknowledged by the collector, in seconds.",
            self._lag_seconds(),
        )
        yield counter(
            "tollkeeper_shipped_records_total", "Records acknowledged by the collector.", shipper.shipped_records
        )
        unanswered = shipper.failures_in_a_row > 0 or shipper.is_unanswered
        yield gauge("tollkeeper_collector_reachable", "Whether the collector accepts records.", int(not unanswered))
        yield gauge(
            "tollkeeper_shipping_failures",
            "Failed attempts since the last acknowledged batch.",
            shipper.failures_in_a_row,
        )
        yield counter(
            "tollkeeper_dead_letter_records_total",
            "Records set aside because the collector refuses them.",
            shipper.dead_letters.records,
        )

    def _lag_seconds(self) -> float:
        journal = self._sources.journal
        oldest = journal.read(journal.cursor, max_entries=1, max_bytes=1)
        if not oldest:
            return 0.0
        return max(self._sources.clock.wall_ns() - unpack_entry(oldest[0])[0], 0) / _NANOSECONDS

    def _engine_families(self) -> Iterator[Family]:
        hosts = list(self._sources.engines().items())
        yield Family(
            "tollkeeper_engine_host_state",
            "gauge",
            "Engine hosts by state: 1 for the current state.",
            [
                ({"host": name, "state": state}, int(host.state == state))
                for name, host in hosts
                for state in _ENGINE_STATES
            ],
        )
        yield Family(
            "tollkeeper_engine_host_requests",
            "gauge",
            "Requests of this gateway in progress at an engine host.",
            [({"host": name}, host.requests) for name, host in hosts],
        )


@cache
def _version() -> str:
    try:
        return version("tollkeeper")
    except PackageNotFoundError:  # run from its sources without being installed
        return "unknown"


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
