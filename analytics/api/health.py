"""Whether the process lives, and whether it can answer."""

from fastapi import APIRouter, Request, Response

from analytics.api.store import Database, Store
from backends.disk_room import DiskState, disk_state
from backends.store.client import StoreClient
from contracts.errors import TollkeeperError

router = APIRouter(tags=["health"])


@router.get("/health", summary="Is the process up")
@router.get("/healthz", include_in_schema=False)
def health() -> dict[str, str]:
    """Answer while the process lives."""
    return {"status": "ok"}


@router.get("/ready", summary="Can it answer and tell")
def ready(request: Request, response: Response, store: Store, database: Database) -> dict[str, object]:
    """Answer 503 where a database is away. `alerts` says how the last look at the rules went.

    `disks` has the store's: it has no page of its own but a ping.
    """
    has_store, has_database = store.ping(), database.is_healthy()
    if not (has_store and has_database):
        response.status_code = 503
    return {
        "status": "ok" if has_store and has_database else "store_away" if has_database else "database_away",
        "disks": [{"holds": "store", "setting": "TOLLKEEPER_STORE_URL", "state": _store_disk(store)}],
        "alerts": request.app.state.watch.state(),
    }


def _store_disk(store: StoreClient) -> DiskState:
    try:
        (row,) = store.query("SELECT min(free_space) AS free FROM system.disks")
    except TollkeeperError:  # away, or a server that does not let this user ask
        return "unknown"
    return disk_state(int(str(row["free"])))
