"""Whether the process lives, and whether it can answer."""

from fastapi import APIRouter, Request, Response

from analytics.api.store import Database, Store
from backends.web.details import shown_to

router = APIRouter(tags=["health"])


@router.get("/health", summary="Is the process up")
@router.get("/healthz", include_in_schema=False)
def health() -> dict[str, str]:
    """Answer while the process lives."""
    return {"status": "ok"}


@router.get("/ready", summary="Can it answer and tell")
def ready(request: Request, response: Response, store: Store, database: Database) -> dict[str, object]:
    """Answer 503 where a database is away. `alerts` says how the last look at the rules went."""
    has_store, has_database = store.ping(), database.is_healthy()
    if not (has_store and has_database):
        response.status_code = 503
    page = {
        "status": "ok" if has_store and has_database else "store_away" if has_database else "database_away",
        "alerts": request.app.state.watch.state(),
    }
    return shown_to(request, request.app.state.detail_access, page)
