"""Liveness and readiness. Neither waits for a database that does not answer."""

import asyncio
from typing import Final, TypeVar

from fastapi import APIRouter, Request, Response

from backends.processes.background_check import BackgroundCheck
from backends.segment_log.disk_room import DiskState, disk_state
from backends.store.client import StoreClient
from backends.web.details import shown_to
from contracts.errors import TollkeeperError

_PATIENCE_SECONDS: Final = 2.0
AnswerT = TypeVar("AnswerT")

router = APIRouter(tags=["health"])


@router.get("/health", summary="Liveness")
@router.get("/healthz", include_in_schema=False)
async def health() -> dict[str, str]:
    """Return ok while the process runs."""
    return {"status": "ok"}


@router.get("/ready", summary="Readiness")
async def ready(request: Request, response: Response) -> dict[str, object]:
    """Return 503 if a database is unreachable or hung. `alerts`: the result of the last evaluation of rules.

    `disks` includes the store's, which has no status page of its own.
    """
    state = request.app.state
    disk, has_database = await asyncio.gather(
        _answer_of(state.store_check, None), _answer_of(state.database_check, instead=False)
    )
    has_store = disk is not None
    if not (has_store and has_database):
        response.status_code = 503
    page = {
        "status": "ok" if has_store and has_database else "store_away" if has_database else "database_away",
        "disks": [{"holds": "store", "setting": "TOLLKEEPER_STORE_URL", "state": disk or "unknown"}],
        "alerts": state.watch.state(),
    }
    return shown_to(request, state.detail_access, page)


def store_disk(store: StoreClient) -> DiskState | None:
    """Return the free space of the store's disk; `None` if the store does not answer. Blocks."""
    if not store.ping():
        return None
    try:
        (row,) = store.query("SELECT min(free_space) AS free FROM system.disks")
    except TollkeeperError:  # a server whose user may not read system.disks
        return "unknown"
    return disk_state(int(str(row["free"])))


async def _answer_of(check: BackgroundCheck[AnswerT], instead: AnswerT) -> AnswerT:
    try:
        return await check.within(_PATIENCE_SECONDS)
    except TimeoutError:
        return instead
