"""`/scim/v2` over HTTP. The library is loaded with the first request: most installations have none."""

from typing import Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

ROOT: Final = "/scim/v2"


async def serve(request: Request) -> Response:
    """Answer one SCIM request, whose token is checked by the service that answers it."""
    body = await request.body()
    return await run_in_threadpool(_answer, request, body)


def _answer(request: Request, body: bytes) -> Response:
    from scim2_server.requests import ScimRequest

    from gateway.control.scim.service import answer_of

    asked = ScimRequest(
        method=request.method,
        base_url=f"{request.url.scheme}://{request.url.netloc}{ROOT}",
        path=request.url.path.removeprefix(ROOT),
        query=dict(request.query_params),
        headers=list(request.headers.items()),
        body=body,
    )
    state = request.app.state
    answer = answer_of(asked, state.tokens, state.database, request.client.host if request.client else "")
    written = b"" if answer.body is None else msgspec.json.encode(answer.body)
    return Response(written, status_code=int(answer.status), headers={**answer.headers, "Cache-Control": "no-store"})


ROUTES: Final = (Route(f"{ROOT}/{{path:path}}", serve, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),)
