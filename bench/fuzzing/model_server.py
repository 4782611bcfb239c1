"""A model server that answers with whatever bytes it is given: the far side of what is fuzzed."""

import asyncio
import json
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final, Literal

Ending = Literal["stay", "close", "reset"]

_USAGE: Final = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}


def whole(body: object, status: int = 200, headers: bytes = b"") -> bytes:
    """Write a whole JSON reply."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
    return head % (status, headers, len(data)) + data


def stream_head() -> bytes:
    """Write the head of a chunked event stream."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(pieces: Sequence[bytes]) -> bytes:
    """Write a body in the chunked coding, one chunk a piece, and its end."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"


def event(data: object) -> bytes:
    """Write one server-sent event."""
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


class _Side(asyncio.Protocol):
    """One connection to the model server."""

    def __init__(self, server: "ModelServer") -> None:
        self._server = server
        self._received = bytearray()
        self._tasks: set[asyncio.Task[None]] = set()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's is one in all but its base class
        self._server.sides.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.sides.discard(self)
        for task in self._tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end])
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        ends_at = end + 4 + int(lines.get(b"content-length", b"0"))
        if len(self._received) < ends_at:
            return
        body = bytes(self._received[end + 4 : ends_at])
        del self._received[:ends_at]
        self._server.bodies.append(body)
        task = asyncio.get_running_loop().create_task(self._answer(head.split(b" ", 2)[1].decode(), body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, path: str, body: bytes) -> None:
        pieces, ending = self._server.answer(path, body)
        for piece in pieces:
            self.transport.write(piece)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        if ending == "reset":
            linger = struct.pack("ii", 1, 0)
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.transport.abort()
        elif ending == "close":
            self.transport.close()


class ModelServer:
    """Answers every request with `script`, its pieces one after another; without one as a good server does."""

    def __init__(self) -> None:
        self.script: tuple[Sequence[bytes], Ending] | None = None
        self.bodies: list[bytes] = []  # received
        self.sides: set[_Side] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen on a port of the system's choice."""
        self._server = await asyncio.get_running_loop().create_server(lambda: _Side(self), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        self.hang_up()
        await asyncio.sleep(0)

    def hang_up(self) -> None:
        """Close every connection, those that nothing is answered on as well."""
        for side in tuple(self.sides):
            side.transport.abort()

    def answer(self, path: str, body: bytes) -> tuple[Sequence[bytes], Ending]:
        """Return what this request is answered with."""
        return self.script if self.script is not None else ((good_answer(path, body),), "stay")


def good_answer(path: str, body: bytes) -> bytes:
    """Answer as a server of OpenAI's and Cohere's APIs does."""
    try:
        asked: dict[str, Any] = json.loads(body)
    except ValueError:
        return whole({"error": {"message": "this is no JSON"}}, 400)
    name = path.rpartition("/")[2]
    if name in ("rerank", "score"):
        scores = [{"index": 0, "relevance_score": 0.5, "score": 0.5, "object": "score"}]
        return whole({"id": "x", "model": "m", "results": scores, "data": scores, "usage": _USAGE})
    if name == "embeddings":
        vector = {"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}
        usage = {"prompt_tokens": 7, "total_tokens": 7}
        return whole({"object": "list", "model": "m", "data": [vector], "usage": usage})
    if asked.get("stream"):
        return stream_head() + chunked([*good_events(name), event(b"[DONE]")])
    said = {"message": {"role": "assistant", "content": "Hi there"}} if name != "completions" else {"text": "Hi there"}
    choice = {"index": 0, "finish_reason": "stop", **said}
    return whole({"id": "x", "object": "o", "created": 1, "model": "m", "choices": [choice], "usage": _USAGE})


def good_events(name: str) -> list[bytes]:
    """Return the events of a good stream but its [DONE]."""
    events = []
    for text in ("Hi", " there"):
        said: dict[str, object] = {"text": text} if name == "completions" else {"delta": {"content": text}}
        events.append(event({"id": "x", "choices": [{"index": 0, "finish_reason": None, **said}]}))
    last: dict[str, object] = {"text": ""} if name == "completions" else {"delta": {}}
    events.append(event({"id": "x", "choices": [{"index": 0, "finish_reason": "stop", **last}]}))
    return [*events, event({"id": "x", "choices": [], "usage": _USAGE})]
