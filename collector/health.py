"""Health and metrics on their own port, so that they answer even if the receivers are saturated."""

from typing import Final, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from backends.network.detail_access import DetailAccess
from backends.segment_log.disk_room import shown_disks
from backends.store.client import STORE_DISK_FULL
from backends.web.details import NEEDS_TOKEN, may_read_metrics, shown_to
from collector.metrics import CollectorMetrics
from collector.state import CollectorState

Status = Literal[
    "ok", "store_unreachable", "store_disk_full", "spool_nearly_full", "spool_full", "spool_damaged", "disk_full"
]
_TAKES_NOTHING: Final = frozenset({"spool_full", "disk_full"})
NEARLY_FULL: Final = 0.8


class Health:
    """Reads the collector's state. /health is 200 while the process lives; /ready is 503 if it accepts no more data."""

    def __init__(self, state: CollectorState, access: DetailAccess) -> None:
        self._state = state
        self._access = access
        self._metrics = CollectorMetrics(state)

    def app(self) -> Starlette:
        """Build the ASGI application."""
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/ready", self._ready),
                Route("/metrics", self._metrics_page),
            ]
        )

    def status(self) -> Status:
        """Return the overall status: the worst of its parts."""
        if self._state.is_disk_full:
            return "disk_full"
        if self._state.spool.is_full:
            return "spool_full"
        if self._state.spool.pending_bytes >= NEARLY_FULL * self._state.spool.max_bytes:
            return "spool_nearly_full"
        if self._state.exporter.failure_code == STORE_DISK_FULL:
            return "store_disk_full"
        if self._state.exporter.store_reachable is False:
            return "store_unreachable"
        if self._state.spool.missing.is_any:
            return "spool_damaged"
        return "ok"

    def report(self) -> dict[str, object]:
        """Return the /health report; `oldest_age_seconds` is `None` if nothing is queued.

        `store_failure`: why the last export failed, such as missing rights, a missing migration or no connection.
        """
        counts = self._state.counters.snapshot()
        return {
            "status": self.status(),
            "store_reachable": self._state.exporter.store_reachable,
            "store_failure": self._state.exporter.failure,
            "disks": shown_disks(self._state.disks),
            "forwarding": {
                one.name: {"waiting_bytes": one.waiting_bytes, "failure": one.failure} for one in self._state.forwarders
            },
            "spool_bytes": self._state.spool.pending_bytes,
            "spool_max_bytes": self._state.spool.max_bytes,
            "oldest_age_seconds": self._state.queue_age_seconds(),
            "export_lag_seconds": self._state.exporter.lag_seconds,
            "received_records": counts["received"],
            "exported_records": sum(counts["exported"].values()),
            "exported": counts["exported"],
            "rejected": counts["rejected"],
            "noticed": counts["noticed"],
            "dead_letters": self._state.dead_letters.written,
            "corrupt_entries": self._state.spool.corrupt_entries,
            "missing_pieces": self._state.missing,
            "missing": self._state.spool.missing.as_json(),
        }

    async def _health(self, request: Request) -> JSONResponse:
        return JSONResponse(shown_to(request, self._access, self.report()))

    async def _ready(self, request: Request) -> JSONResponse:
        page = shown_to(request, self._access, self.report())
        return JSONResponse(page, status_code=503 if self.status() in _TAKES_NOTHING else 200)

    async def _metrics_page(self, request: Request) -> Response:
        if may_read_metrics(request, self._access):
            return await self._metrics.page(request)
        return Response(NEEDS_TOKEN, status_code=401, headers={"WWW-Authenticate": "Bearer"}, media_type="text/plain")
