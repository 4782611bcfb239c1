"""The page that Prometheus scrapes: what an autoscaler goes by, by model. Engines are the platform's."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from analytics.api.access import Reader
from analytics.autoscaling.exposition import CONTENT_TYPE, signal_page
from analytics.autoscaling.signals import SignalReader
from contracts.errors import PermissionDenied

router = APIRouter(tags=["autoscaling"])


@router.get(
    "/metrics",
    summary="Queue, KV cache and predicted time to first token, for Prometheus",
    response_class=PlainTextResponse,
)
def metrics(request: Request, reader: Reader) -> Response:
    """503 where the store is away: a page without samples would read as if there were no replicas."""
    if reader.tenant is not None:
        raise PermissionDenied("engines serve all tenants; ask with an admin token that sees all of them")
    signals: SignalReader = request.app.state.signals
    return Response(signal_page(signals.read()), media_type=CONTENT_TYPE)
