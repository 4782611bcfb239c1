"""The GPU ledger over HTTP, as `tollkeeper gpu ledger --json`. For viewers of the whole installation."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from analytics.api.access import Reader
from analytics.api.store import Store
from analytics.gpu.ledger import gpu_ledger, ledger_as_json
from analytics.scope import Period
from contracts.errors import InvalidRequest, PermissionDenied

router = APIRouter(prefix="/v1/gpu", tags=["gpu"])


@router.get("/ledger", summary="GPU time by ledger line")
def ledger(
    reader: Reader,
    store: Store,
    start: Annotated[AwareDatetime, Query(alias="from")],
    end: Annotated[AwareDatetime, Query(alias="to")],
    minutes: Annotated[bool, Query(description="Include every minute")] = False,
) -> dict[str, Any]:
    """Return GPU time by ledger line. Status 403 for callers of one tenant, as engines serve all tenants."""
    if reader.tenant is not None:
        raise PermissionDenied("GPUs are shared by all tenants; use an admin token without a tenant")
    if end <= start:
        raise InvalidRequest("the range ends before it starts; choose a later `to`", param="to")
    period = Period(start, end)
    return ledger_as_json(gpu_ledger(store, period), minutes=minutes)
