"""A bound on request bodies, before anything of them is parsed."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from backends.web.replies import error_reply
from contracts.errors import BodyTooLarge

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class BodyLimit:
    """ASGI middleware: a body is read whole, up to the limit, and refused beyond it with 413."""

    def __init__(self, app: App, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        chunks: list[Message] = []
        size = 0
        while True:
            message = await receive()
            chunks.append(message)
            size += len(message.get("body", b""))
            if size > self.max_bytes:
                error = BodyTooLarge(f"the body has more than {self.max_bytes} bytes", param="body")
                await error_reply(error)(scope, receive, send)
                return
            if message["type"] != "http.request" or not message.get("more_body", False):
                break
        pending = iter(chunks)

        async def replay() -> Message:
            message = next(pending, None)
            return await receive() if message is None else message

        await self.app(scope, replay, send)
