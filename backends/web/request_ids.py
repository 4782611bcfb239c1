"""The header `x-request-id` on every response, for bug reports."""

import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contracts.recording.ids import uuid7

HEADER: Final = "x-request-id"
IN_SCOPE: Final = "tollkeeper.request_id"


def new_request_id() -> str:
    """Return a new id."""
    return str(uuid7(time.time_ns()))


class RequestIds:
    """Outermost ASGI middleware: creates an id per request, and adds it to the response's headers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = new_request_id()
        scope[IN_SCOPE] = request_id

        async def send_identified(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (HEADER.encode(), request_id.encode())]}
            await send(message)

        await self.app(scope, receive, send_identified)
