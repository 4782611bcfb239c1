"""A client's connection to a gateway: it sends a request and counts what it receives, token by token."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

_READ_BYTES: Final = 1 << 20
_ANSWER_SECONDS: Final = 300.0


@dataclass(slots=True)
class Answer:
    """What has come of one answer so far. `text` is the streamed answer's; a token of the scripted model is a word."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    text: str = ""
    finish_reason: str = ""
    usage: tuple[int, int] | None = None  # prompt and completion tokens, as the stream's end told them
    message_usage: dict[str, int] = field(default_factory=dict)  # of an answer of the Messages API
    is_whole: bool = False

    @property
    def json(self) -> Any:
        """Return the body of an answer that was no stream."""
        return json.loads(self.body)

    @property
    def error_code(self) -> str:
        """Return the error's code; empty if it is none."""
        if self.status == 200 or not self.body:
            return ""
        return str(self.json["error"]["code"])

    @property
    def tokens(self) -> int:
        """Return how many output tokens were received."""
        return len(self.text.split())

    @property
    def wait_seconds(self) -> float | None:
        """Return how long the client is told to wait, by `retry-after-ms`."""
        told = self.headers.get("retry-after-ms")
        return None if told is None else float(told) / 1000

    @property
    def is_place_kept(self) -> bool:
        """Return whether the refusal promises a place."""
        return b"capacity reserved for you" in self.body

    @property
    def request_id(self) -> str:
        """Return the id that its record has, without hyphens."""
        return self.headers.get("x-request-id", "").replace("-", "")


class Connection:
    """One connection, kept alive from request to request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to a gateway on this machine. Raises OSError."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=_READ_BYTES))

    async def begin(self, request: bytes) -> Answer:
        """Send a request and read what is told before a stream: status and headers, or a whole refusal."""
        found = Answer()
        self._writer.write(request)
        async with asyncio.timeout(_ANSWER_SECONDS):
            await self._read_head(found)
            if found.headers.get("transfer-encoding") != "chunked":
                found.body = await self._reader.readexactly(int(found.headers.get("content-length", "0")))
        return found

    async def ask(self, request: bytes, answer: Answer | None = None, drop_after: int | None = None) -> Answer:
        """Send a request and read its answer into `answer`, so that a caller who gives up has what came.

        After `drop_after` received tokens the connection is closed. Raises OSError, IncompleteReadError, TimeoutError.
        """
        found = answer or Answer()
        self._writer.write(request)
        async with asyncio.timeout(_ANSWER_SECONDS):
            await self._read_head(found)
            if found.headers.get("transfer-encoding") == "chunked":
                await self._read_stream(found, drop_after)
            else:
                found.body = await self._reader.readexactly(int(found.headers.get("content-length", "0")))
                found.is_whole = True
        return found

    def close(self) -> None:
        """Close it, whatever is still to come."""
        self._writer.close()

    async def _read_head(self, answer: Answer) -> None:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        answer.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:]) if name}
        answer.status = int(head[0].split(" ", 2)[1])

    async def _read_stream(self, answer: Answer, drop_after: int | None) -> None:
        begun, received = b"", 0
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            begun += (await self._reader.readexactly(size + 2))[:-2]
            *events, begun = begun.split(b"\n\n")
            for event in events:
                received += _take_event(answer, event)
            if drop_after is not None and received >= drop_after:
                self.close()
                return
        await self._reader.readexactly(2)


def _take_event(answer: Answer, event: bytes) -> int:
    """Add one server-sent event; return 1 where it brought text."""
    data = event.partition(b"data: ")[2]
    if data == b"[DONE]":
        answer.is_whole = True
        return 0
    if not data:
        return 0
    chunk = json.loads(data)
    if "type" in chunk:
        return _take_message_event(answer, chunk)
    if usage := chunk.get("usage"):
        answer.usage = (usage["prompt_tokens"], usage["completion_tokens"])
    for choice in chunk.get("choices", ()):
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        if text := choice["delta"].get("content"):
            answer.text += text
            return 1
    return 0


def _take_message_event(answer: Answer, event: dict[str, Any]) -> int:
    """Add one event of the Messages API; return 1 if it brought text."""
    answer.is_whole = answer.is_whole or event["type"] == "message_stop"
    usage = event.get("usage") or event.get("message", {}).get("usage") or {}
    answer.message_usage.update({name: count for name, count in usage.items() if isinstance(count, int)})
    delta = event.get("delta", {})
    answer.finish_reason = delta.get("stop_reason") or answer.finish_reason
    text: str = delta.get("text", "")
    answer.text += text
    return 1 if text else 0


def post_request(path: str, key: str, body: dict[str, Any], headers: Mapping[str, str]) -> bytes:
    """Write a request with a JSON body."""
    data = json.dumps(body).encode()
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\n{more}Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def chat_request(key: str, body: dict[str, Any], retries: int | None = None) -> bytes:
    """Write a chat request; `retries` says which try it is, as the SDKs say it."""
    tried = {} if retries is None else {"x-stainless-retry-count": str(retries)}
    return post_request("/v1/chat/completions", key, body, tried)
