"""A bound on request bodies, before anything of them is parsed."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
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
        if _declared_bytes(scope["headers"]) > self.max_bytes:
            await self._refuse(scope, receive, send)
            return
        body = bytearray()  # and not pieces of a few bytes each, which would take many times their length
        while True:
            last = await receive()
            body += last.get("body", b"")
            if len(body) > self.max_bytes:
                await self._refuse(scope, receive, send)
                return
            if last["type"] != "http.request" or not last.get("more_body", False):
                break
        whole = {**last, "body": bytes(body)} if last["type"] == "http.request" else last
        pending = iter((whole,))

        async def replay() -> Message:
            message = next(pending, None)
            return await receive() if message is None else message

        await self.app(scope, replay, send)

    async def _refuse(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        error = BodyTooLarge(f"the body has more than {self.max_bytes} bytes", param="body")
        await error_reply(error)(scope, receive, send)


def _declared_bytes(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the declared length of a body. The parser has refused anything but digits; 0: none is declared."""
    return next((int(value) for name, value in headers if name == b"content-length"), 0)
