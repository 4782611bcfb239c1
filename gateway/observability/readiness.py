"""The report of GET /ready: whether usage is stored durably, whether keys are fresh, what waits, and what is
degraded.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backends.llm.host.engine_hosts import EngineHosts
from backends.llm.host.host_connection import HostStatus
from backends.segment_log.disk_room import WatchedDisk, shown_disks
from gateway.apis.batches.service import BatchService
from gateway.cache.answer_cache import AnswerCache
from gateway.config.directory import Directory
from gateway.config.targets import TargetRegistry
from gateway.identity.authentication import Authenticator
from gateway.limits.queue.pool_queue import PoolQueues
from gateway.mcp.servers import McpServers
from gateway.observability.process_watch import ProcessWatch
from gateway.observability.provider_hosts import ProviderHosts
from gateway.records.accounting import Accounting
from gateway.records.engine_records import JournalledEngineRecords
from gateway.records.shipper import Shipper
from gateway.routing.health.health_book import HealthBook
from gateway.routing.replicas.router import Router
from gateway.routing.rollouts.rollouts import Rollouts
from gateway.routing.semantic.service import SemanticService
from gateway.wire.listener_context import ListenerContext

_NOT_SERVING: Final = frozenset({"failed", "hung", "away", "incompatible"})  # states of engine and provider hosts


@dataclass(frozen=True, slots=True)
class Readiness:
    """The parts of a gateway whose state is reported."""

    accounting: Accounting
    directory: Directory
    authenticator: Authenticator
    queues: PoolQueues
    targets: TargetRegistry
    health_book: HealthBook
    router: Router
    rollouts: Rollouts
    answers: AnswerCache
    semantic: SemanticService
    mcp: McpServers
    batches: BatchService
    engines: EngineHosts
    engine_records: JournalledEngineRecords
    providers: ProviderHosts
    processes: ProcessWatch
    tls: ListenerContext | None
    shipper: Callable[[], Shipper | None]
    connection_count: Callable[[], int]
    is_draining: Callable[[], bool]
    disks: Sequence[WatchedDisk]

    def page(self) -> dict[str, object]:
        """Return the whole state. `problems` prevent the gateway from serving; `degraded` is for alerts."""
        books, directory, shipper = self.accounting, self.directory, self.shipper()
        problems = self._problems()
        return {
            "status": "draining" if self.is_draining() else "not_ready" if problems else "ready",
            "problems": problems,
            "degraded": self._degraded(),
            "revision": directory.snapshot.revision,
            "control_plane": "away" if directory.is_source_away else "reachable",
            "collector": _collector_state(shipper),
            "in_flight": books.admission.in_flight,
            "counters": books.counters.status(),
            "clock_set_seconds": round(books.clock.set_seconds(), 3),
            "queues": self.queues.state(),
            "budget_totals": "not_written" if books.ledger.is_broken else "written",
            "budget_states": "away" if books.watch.is_away else "published" if books.publisher else "kept",
            "connections": self.connection_count(),
            "configuration": directory.refused or "current",
            "certificate": "none" if self.tls is None else self.tls.fault or "current",
            "journal_bytes": books.journal.pending_bytes,
            "journal_max_bytes": books.journal.max_bytes,
            "journal_corrupt_entries": books.journal.corrupt_entries,
            "journal_missing": books.journal.missing.as_json(),
            "sent_requests_damaged": books.sent.damaged,
            "budget_totals_missing": books.ledger.missing.as_json(),
            "disks": shown_disks(self.disks),
            "recorded_requests": books.recorder.recorded_requests,
            "unauthenticated_requests": books.recorder.unauthenticated_requests,
            **self.authenticator.status(),
            "unrecorded_rejections": books.recorder.unrecorded_rejections,
            "dropped_records": books.journal.dropped_records,
            "pending_spans": 0 if books.spans is None else books.spans.pending_spans,
            "dropped_spans": 0 if books.spans is None else books.spans.dropped_spans,
            "dead_letter_records": shipper.dead_letters.records if shipper else 0,
            "dead_letter_bytes": shipper.dead_letters.bytes if shipper else 0,
            "batches": self._batches(),
            "answer_cache": self.answers.state(),
            "semantic": self.semantic.status(),
            "missing_pieces": [loss.facts for loss in books.pieces.losses],
            "misconfigured": directory.snapshot.misconfigured,
            "misconfigured_targets": self.targets.broken,
            "targets_away": self.health_book.states(),
            "targets_ignoring_max_tokens": self.health_book.ignoring_limit(),
            "target_changes": self.health_book.changes.shown(),
            **_engine_health(self.engines.status(), self.engine_records),
            "routing": self.router.status(),
            "rollouts": self.rollouts.status(),
            "processes": self.processes.page(),
            "provider_host": self.providers.health(),
            "mcp_servers": self.mcp.states(),
        }

    def _problems(self) -> list[str]:
        books = self.accounting
        problems = []
        if not books.admission.has_journal_room:
            problems.append("journal_full")
            problems += ["disk_full"] if books.journal.is_disk_full else []
        if not books.counters.has_leases:
            problems.append("leases_used_up")
        if self.directory.is_too_old:
            problems.append("control_unavailable")
        return problems

    def _degraded(self) -> list[str]:
        """Return faults that do not keep the gateway from serving."""
        books = self.accounting
        disks = {disk.state for disk in self.disks}
        faults = {
            "disk_full": "full" in disks,
            "disk_low": "low" in disks,
            "counters_away": books.counters.status().get("reachable") is False,
            "clock_set": books.clock.is_set,
            "control_away": self.directory.is_source_away,
            "budget_totals_not_written": books.ledger.is_broken,
            "journal_damaged": books.journal.missing.is_any,
            "sent_requests_damaged": bool(books.sent.damaged),
            "budget_totals_damaged": books.ledger.missing.is_any,
            "budget_states_away": books.watch.is_away,
            "batches_away": self.batches.state.is_broken,
            "configuration": bool(self.directory.refused),
            "targets_away": self.health_book.is_degraded,
            "engines_away": any([host.state in _NOT_SERVING for host in self.engines.status().values()]),
            "provider_host_away": (self.providers.health() or {}).get("state") in _NOT_SERVING,
            "processes_away": self.processes.is_degraded,
            "collector_away": _collector_state(self.shipper()) in ("away", "hung"),
            "max_tokens_ignored": bool(self.health_book.ignoring_limit()),
            "semantic": self.semantic.is_degraded,
            "audit": books.audit.is_degraded,
            "pieces_missing": bool(books.pieces.losses),
            "rollout_stopped": self.rollouts.has_stopped,
            "certificate": self.tls is not None and bool(self.tls.fault),
            "misconfigured": bool(self.directory.snapshot.misconfigured or self.targets.broken),
        }
        return [name for name, is_so in faults.items() if is_so]

    def _batches(self) -> dict[str, int]:
        state = self.batches.state
        return {"in_progress": state.batches, "lines_in_flight": state.serving, "lines_waiting": state.waiting}


def _collector_state(shipper: Shipper | None) -> str:
    if shipper is None:
        return "none"
    if shipper.is_unanswered:
        return "hung"
    return "away" if shipper.failures_in_a_row else "reachable"


def _engine_health(hosts: Mapping[str, HostStatus], records: JournalledEngineRecords) -> dict[str, object]:
    """Return the state of the engine hosts. An unavailable one affects only its own models."""
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
            for name, host in hosts.items()
        },
        "step_records": records.step_records,
        "kv_records": records.kv_records,
        "dropped_kv_records": records.dropped_kv_records,
    }
