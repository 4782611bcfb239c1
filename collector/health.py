"""The collector's health as JSON, on a port of its own: it answers also when the receivers are saturated."""

import time
from collections.abc import Callable
from typing import Final, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from collector.counters import Counters
from collector.dead_letters import DeadLetters
from collector.exporters.clickhouse import ClickHouseExporter
from collector.spool import Spool

Status = Literal["ok", "store_unreachable", "spool_nearly_full", "spool_full"]
NEARLY_FULL: Final = 0.8


class Health:
    """Reads the collector's state. /health is 200 while the process lives; /ready is 503 when the spool is full."""

    def __init__(
        self,
        spool: Spool,
        exporter: ClickHouseExporter,
        dead_letters: DeadLetters,
        counters: Counters,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._spool = spool
        self._exporter = exporter
        self._dead_letters = dead_letters
        self._counters = counters
        self._clock_ns = clock_ns

    def app(self) -> Starlette:
        """Build the ASGI application."""
        return Starlette(routes=[Route("/health", self._health), Route("/ready", self._ready)])

    def status(self) -> Status:
        """Name the worst that is wrong."""
        if self._spool.is_full:
            return "spool_full"
        if self._spool.pending_bytes >= NEARLY_FULL * self._spool.max_bytes:
            return "spool_nearly_full"
        if self._exporter.store_reachable is False:
            return "store_unreachable"
        return "ok"

    def report(self) -> dict[str, object]:
        """Give everything worth knowing; `oldest_age_seconds` is `None` when nothing waits."""
        counts = self._counters.snapshot()
        oldest = self._spool.oldest_received_at_ns()
        return {
            "status": self.status(),
            "store_reachable": self._exporter.store_reachable,
            "spool_bytes": self._spool.pending_bytes,
            "spool_max_bytes": self._spool.max_bytes,
            "oldest_age_seconds": None if oldest is None else max(self._clock_ns() - oldest, 0) / 1e9,
            "received_records": counts["received"],
            "exported_records": sum(counts["exported"].values()),
            "exported": counts["exported"],
            "rejected": counts["rejected"],
            "noticed": counts["noticed"],
            "dead_letters": self._dead_letters.written,
            "corrupt_entries": self._spool.corrupt_entries,
        }

    async def _health(self, _: Request) -> JSONResponse:
        return JSONResponse(self.report())

    async def _ready(self, _: Request) -> JSONResponse:
        return JSONResponse(self.report(), status_code=503 if self.status() == "spool_full" else 200)
