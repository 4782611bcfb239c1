"""Health pages of ASGI processes: the status for everyone, details only for callers that `DetailAccess` allows."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request

from backends.network.detail_access import DetailAccess

NEEDS_TOKEN: Final = (
    "the metrics need the token of TOLLKEEPER_METRICS_TOKEN, or of the secret file metrics_token, as a bearer\n"
)


def shown_to(request: Request, access: DetailAccess, page: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a health page that this caller may see."""
    authorization = request.headers.get("authorization", "").encode("latin-1", "replace")
    if access.allows(_peer(request), request.headers.keys(), authorization):
        return dict(page)
    return {"status": page["status"]}


def may_read_metrics(request: Request, access: DetailAccess) -> bool:
    """Return whether this caller may read metrics."""
    authorization = request.headers.get("authorization", "").encode("latin-1", "replace")
    return access.allows_metrics(_peer(request), request.headers.keys(), authorization)


def _peer(request: Request) -> str:
    return request.client.host if request.client else ""
