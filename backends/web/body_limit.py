"""A limit on the size of request bodies, checked before parsing."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from backends.web.replies import error_reply
from contracts.errors import BodyTooLarge

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class BodyLimit:
    """ASGI middleware that reads each body whole, and refuses bodies above the limit with 413."""

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
        body = bytearray()  # a list of small pieces would need many times their length in memory
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
    """Return the declared length of a body; 0 if there is none. The parser has refused anything but digits."""
    return next((int(value) for name, value in headers if name == b"content-length"), 0)
