"""Health pages of ASGI processes: the status for everybody, the rest for callers of `DetailAccess`."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request

from backends.network.detail_access import DetailAccess

NEEDS_TOKEN: Final = (
    "the metrics need the token of TOLLKEEPER_METRICS_TOKEN, or of the secret file metrics_token, as a bearer\n"
)


def shown_to(request: Request, access: DetailAccess, page: Mapping[str, Any]) -> dict[str, Any]:
    """Return a health page as this caller may see it."""
    authorization = request.headers.get("authorization", "").encode("latin-1", "replace")
    if access.allows(_peer(request), request.headers.keys(), authorization):
        return dict(page)
    return {"status": page["status"]}


def may_read_metrics(request: Request, access: DetailAccess) -> bool:
    """Return whether this caller is told the metrics."""
    authorization = request.headers.get("authorization", "").encode("latin-1", "replace")
    return access.allows_metrics(_peer(request), request.headers.keys(), authorization)


def _peer(request: Request) -> str:
    return request.client.host if request.client else ""
