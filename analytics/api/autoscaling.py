"""The metrics page with autoscaling signals by model, for Prometheus. Only for viewers of the whole installation."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials

from analytics.api.access import BEARER, anybody, reader
from analytics.autoscaling.exposition import CONTENT_TYPE, signal_page
from analytics.autoscaling.signals import SignalReader
from backends.network.detail_access import DetailAccess
from contracts.errors import PermissionDenied

router = APIRouter(tags=["autoscaling"])


def scraper(request: Request, presented: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]) -> None:
    """Raise PermissionDenied unless the caller has the metrics token or may see all tenants."""
    access: DetailAccess = request.app.state.detail_access
    if access.has_token(request.headers.get("authorization", "").encode("latin-1", "replace")):
        return
    if reader(anybody(request, presented)).tenant is not None:
        raise PermissionDenied(
            "engines serve all tenants; ask with the metrics token, or an admin token that sees all of them"
        )


@router.get(
    "/metrics",
    summary="Queue, KV cache and predicted time to first token, for Prometheus",
    response_class=PlainTextResponse,
    dependencies=[Depends(scraper)],
)
def metrics(request: Request) -> Response:
    """Return scaling signals in Prometheus' text format. Status 503 if the store is unreachable: a page without samples
    would mean that there are no replicas.
    """
    signals: SignalReader = request.app.state.signals
    return Response(signal_page(signals.read()), media_type=CONTENT_TYPE)
