"""The gateway's accounting components: limits, settlement, journal, shipper, audit and traces."""

from collections.abc import Coroutine
from typing import Final

from contracts.serving.configuration import Snapshot
from gateway.limits.admission import Admission
from gateway.limits.budgets.budget_ledger import BudgetLedger
from gateway.limits.budgets.budget_watch import BudgetWatch
from gateway.limits.estimates.counting import TokenEstimator
from gateway.limits.estimates.output_estimates import OutputEstimator
from gateway.limits.limiter import Limiter
from gateway.observability.metrics.request_counts import RequestCounts
from gateway.observability.pieces import GatewayPieces
from gateway.process.parts import budget_publisher, counter_store, request_audit, span_emitter, window_file
from gateway.process.settings import GatewaySettings
from gateway.records.content import ContentKeeper, read_redactor
from gateway.records.journal import Journal
from gateway.records.lost_requests import record_lost
from gateway.records.recorder import Recorder
from gateway.records.sent_requests import SentRequests
from gateway.request.charges.settlement import Settlement
from gateway.request.clock import Clock

_LAST_SPANS_SECONDS: Final = 2.0


class Accounting:
    """Creates the accounting components in the order of their dependencies, and closes them in reverse order."""

    def __init__(self, settings: GatewaySettings, first: Snapshot, clock: Clock) -> None:
        name = settings.name
        self.clock = clock
        self.pieces = GatewayPieces(settings)  # before anything is made
        directory = settings.own("journal")
        self.journal = Journal(directory, max_bytes=settings.journal_max_bytes, when_full=settings.journal_when_full)
        self.counts = RequestCounts(settings.metrics_tenants) if settings.metrics else None
        self.spans = span_emitter(settings, name)
        self.content = ContentKeeper(self.journal, read_redactor(settings.content_patterns), settings.content_max_bytes)
        emit_spans = None if self.spans is None else self.spans.emit
        self.audit = request_audit(settings)
        self.sent = SentRequests(settings.own("sent-requests"), clock)
        self.inputs = TokenEstimator()
        self.recorder = Recorder(
            self.journal, name, emit_spans, self.counts, self.content, self.audit, self.sent, self.inputs
        )
        self.settlement = Settlement(self.inputs)
        record_lost(self.sent, self.journal, self.recorder, self.settlement, first)  # before budgets read the journal
        self.admission = Admission(self.journal, settings.max_concurrent)
        self.publisher = budget_publisher(settings, name)
        self.ledger = BudgetLedger(settings.own("budgets"), self.journal)
        self.journal.before_release = self.ledger.flush
        self.pieces.watch(self.journal)
        self.watch = BudgetWatch(self.ledger, self.publisher.publish if self.publisher else None)
        self.counters = counter_store(settings, name, self.watch, clock)
        self.ledger.restore(self.counters.open_budget, first.budgets, clock.steady_ns())
        self._windows = window_file(settings, self.counters, first, clock)
        self.limiter = Limiter(self.counters, self.inputs, OutputEstimator(), clock, self.watch.on_refused)

    def running(self) -> dict[str, Coroutine[None, None, None]]:
        """Return the background tasks by name."""
        running = {
            "counters": self.counters.run(),
            "clock": self.clock.watch(),
            "budgets": self.watch.run(),
            "audit": self.audit.run(),
            "requests in progress": self.sent.run(),
        }
        if self.spans is not None:
            running["spans"] = self.spans.run()
        return running if self._windows is None else {**running, "windows": self._windows.run()}

    async def close(self) -> None:
        """Report, flush and close everything, after all tasks have ended."""
        await self.content.close()
        self.audit.close()
        await self.watch.tell()
        if self._windows is not None:
            await self._windows.write()
        await self.counters.close()
        self.ledger.close()
        if self.publisher is not None:
            self.publisher.close()
        if self.spans is not None:
            await self.spans.close(within_seconds=_LAST_SPANS_SECONDS)
        self.sent.close()
        self.pieces.close()
        self.journal.close()
