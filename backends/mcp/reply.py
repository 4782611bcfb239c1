"""Receives one reply of an MCP server: whole JSON or a stream of events, bounded in bytes and messages."""

import contextlib
from collections.abc import Callable
from typing import Final

import msgspec

from contracts.errors import TollkeeperError, UpstreamBroken
from contracts.mcp.wire import RpcMessage

_MAX_ENVELOPE_BYTES: Final = 16 * 1024  # around a result
MAX_STREAM_BYTES: Final = 1024 * 1024  # of notifications beside a result
MAX_MESSAGES: Final = 2000  # for one request
_MAX_ERROR_BYTES: Final = 64 * 1024
TOO_LARGE: Final = "tool_result_too_large"

_decode: Final = msgspec.json.Decoder(RpcMessage).decode


class McpReply:
    """Receives one reply. `answer` is the response to the request `id`, once it has arrived.

    `on_notification` is called with each notification, `on_request` with the id and method of each request that the
    server makes of its client, `on_answer` when the response is complete.
    """

    def __init__(
        self,
        id: int | str | None,
        max_bytes: int,
        on_notification: Callable[[str, bytes], None] | None = None,
        on_request: Callable[[int | str, str], None] | None = None,
        on_answer: Callable[[], None] | None = None,
        scrub: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """`scrub` returns a message without secrets that clients must not see."""
        self.status = 0
        self.challenge = b""  # the WWW-Authenticate header
        self.session = ""
        self.answer: RpcMessage | None = None
        self.is_overlong = False
        self._id = id
        self._max_result_bytes = max_bytes
        self._on_notification = on_notification
        self._on_request = on_request
        self._on_answer = on_answer
        self._scrub = scrub
        self._is_stream = False
        self._is_json = False
        self._parts: list[bytes] = []
        self._size = 0
        self._messages = 0
        self._limit = max_bytes + _MAX_ENVELOPE_BYTES
        self._line = b""
        self._data: list[bytes] = []
        self._data_size = 0

    # Receiver

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Process the head. Raises UpstreamBroken if the body is compressed or its stated length exceeds the limit."""
        self.status = status
        self.challenge = headers.get(b"www-authenticate", b"")
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        self._is_stream = kind == b"text/event-stream" and status == 200
        self._is_json = kind == b"application/json"
        session = headers.get(b"mcp-session-id", b"")
        if session and len(session) <= 1024 and all(0x21 <= byte <= 0x7E for byte in session):
            self.session = session.decode("ascii")
        if status != 200:
            self._limit = _MAX_ERROR_BYTES
        elif self._is_stream:
            self._limit = self._max_result_bytes + MAX_STREAM_BYTES
        if headers.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
            raise UpstreamBroken("the MCP server compressed its reply, which it was asked not to")
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._limit:
            self._refuse()

    def on_body(self, data: bytes) -> None:
        """Process a piece of the body. Raises UpstreamBroken if it exceeds the limit."""
        self._size += len(data)
        if self._size > self._limit:
            self._refuse()
        if self._is_stream:
            self._feed(data)
        else:
            self._parts.append(data)

    # The client's side

    def conclude(self) -> RpcMessage | None:
        """Return the response after the end of the reply; `None` if there is no readable one."""
        if self.answer is None and self._is_json and not self._is_stream:
            with contextlib.suppress(msgspec.MsgspecError, RecursionError):
                message = self._read(b"".join(self._parts))
                if self._answers(message):
                    self.answer = message
        return self.answer

    def _read(self, body: bytes) -> RpcMessage:
        return _decode(body if self._scrub is None else self._scrub(body))

    def _answers(self, message: RpcMessage) -> bool:
        if message.result is msgspec.UNSET and message.error is msgspec.UNSET:
            return False
        is_unnamed = message.id is None or message.id is msgspec.UNSET
        return message.id == self._id or (is_unnamed and message.error is not msgspec.UNSET)

    def _feed(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                piece = line[5:].removeprefix(b" ")
                self._data.append(piece)
                self._data_size += len(piece)
                if self._data_size > self._max_result_bytes + _MAX_ENVELOPE_BYTES:
                    self._refuse()
            elif not line and self._data:
                event, self._data, self._data_size = b"\n".join(self._data), [], 0
                if event:
                    self._take(event)

    def _take(self, event: bytes) -> None:
        self._messages += 1
        if self._messages > MAX_MESSAGES:
            raise UpstreamBroken(f"the MCP server sent more than {MAX_MESSAGES} messages for one request")
        try:
            event = event if self._scrub is None else self._scrub(event)
            message = _decode(event)
        except (msgspec.MsgspecError, RecursionError):
            raise UpstreamBroken("the MCP server sent an event that is no JSON-RPC message") from None
        if isinstance(message.method, str):
            if isinstance(message.id, int | str):
                if self._on_request is not None:
                    self._on_request(message.id, message.method)
            elif self._on_notification is not None and self.answer is None:
                self._on_notification(message.method, event)
        elif self.answer is None and self._answers(message):
            self.answer = message
            if self._on_answer is not None:
                self._on_answer()

    def _refuse(self) -> None:
        self.is_overlong = True
        raise too_large(self._max_result_bytes)


def too_large(limit: int) -> TollkeeperError:
    """Return the error for a result above its size limit."""
    return UpstreamBroken(f"the result has more than {limit} bytes, the bound of this tool", code=TOO_LARGE)
