"""What GET /ready shows: is usage safe, are keys fresh, what waits, what is not as it should be."""

from collections.abc import Callable
from dataclasses import dataclass

from backends.llm.engine_hosts import EngineHosts
from gateway.accounting import Accounting
from gateway.answer_cache.answer_cache import AnswerCache
from gateway.attempts.health_book import HealthBook
from gateway.batches.service import BatchService
from gateway.directory import Directory
from gateway.engine_health import engine_health
from gateway.engine_records import JournalledEngineRecords
from gateway.identity.authentication import Authenticator
from gateway.listener_context import ListenerContext
from gateway.provider_hosts import ProviderHosts
from gateway.rollouts.rollouts import Rollouts
from gateway.routing.router import Router
from gateway.scheduling.pool_queues import PoolQueues
from gateway.semantic.service import SemanticService
from gateway.shipper import Shipper
from gateway.targets import TargetRegistry


@dataclass(frozen=True, slots=True)
class Readiness:
    """The parts of a gateway that are looked at."""

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
    batches: BatchService
    engines: EngineHosts
    engine_records: JournalledEngineRecords
    providers: ProviderHosts
    tls: ListenerContext | None
    shipper: Callable[[], Shipper | None]
    connection_count: Callable[[], int]
    is_draining: Callable[[], bool]

    def page(self) -> dict[str, object]:
        """Give all of it. `problems` keep the gateway from serving, `degraded` is for alerts."""
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
            "queues": self.queues.state(),
            "budget_totals": "not_written" if books.ledger.is_broken else "written",
            "budget_states": "away" if books.watch.is_away else "published" if books.publisher else "kept",
            "connections": self.connection_count(),
            "configuration": directory.refused or "current",
            "certificate": "none" if self.tls is None else self.tls.fault or "current",
            "journal_bytes": books.journal.pending_bytes,
            "journal_max_bytes": books.journal.max_bytes,
            "journal_corrupt_entries": books.journal.corrupt_entries,
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
            "misconfigured": directory.snapshot.misconfigured,
            "misconfigured_targets": self.targets.broken,
            "targets_away": self.health_book.states(),
            "targets_ignoring_max_tokens": self.health_book.ignoring_limit(),
            "target_changes": self.health_book.changes.shown(),
            **engine_health(self.engines.status(), self.engine_records),
            "routing": self.router.status(),
            "rollouts": self.rollouts.status(),
            "provider_host": self.providers.health(),
        }

    def _problems(self) -> list[str]:
        books = self.accounting
        problems = []
        if not books.admission.has_journal_room:
            problems.append("journal_full")
            problems += ["disk_full"] if books.journal.is_disk_full else []
        if self.directory.is_too_old:
            problems.append("control_unavailable")
        return problems

    def _degraded(self) -> list[str]:
        """Give what is not as it should be and keeps nobody from being served."""
        books = self.accounting
        faults = {
            "counters_away": books.counters.status().get("reachable") is False,
            "control_away": self.directory.is_source_away,
            "budget_totals_not_written": books.ledger.is_broken,
            "budget_states_away": books.watch.is_away,
            "batches_away": self.batches.state.is_broken,
            "configuration": bool(self.directory.refused),
            "targets_away": self.health_book.is_degraded,
            "max_tokens_ignored": bool(self.health_book.ignoring_limit()),
            "semantic": self.semantic.is_degraded,
            "audit": books.audit.is_degraded,
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
    return "away" if shipper.failures_in_a_row else "reachable"
