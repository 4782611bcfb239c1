"""Whether the process lives, and whether it can answer. Neither waits for a database that is stopped."""

import asyncio
from typing import Final

from fastapi import APIRouter, Request, Response

from backends.background_check import BackgroundCheck

_PATIENCE_SECONDS: Final = 2.0

router = APIRouter(tags=["health"])


@router.get("/health", summary="Is the process up")
@router.get("/healthz", include_in_schema=False)
async def health() -> dict[str, str]:
    """Answer while the process lives."""
    return {"status": "ok"}


@router.get("/ready", summary="Can it answer and tell")
async def ready(request: Request, response: Response) -> dict[str, object]:
    """Answer 503 where a database is away or hung. `alerts` says how the last look at the rules went."""
    state = request.app.state
    has_store, has_database = await asyncio.gather(_answers(state.store_check), _answers(state.database_check))
    if not (has_store and has_database):
        response.status_code = 503
    return {
        "status": "ok" if has_store and has_database else "store_away" if has_database else "database_away",
        "alerts": state.watch.state(),
    }


async def _answers(check: BackgroundCheck[bool]) -> bool:
    try:
        return await check.within(_PATIENCE_SECONDS)
    except TimeoutError:
        return False
