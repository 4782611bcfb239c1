"""A model server that plays bytes: the far side of every test that calls a model over HTTP."""

import asyncio
import json
import socket
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

Step = bytes | float | str | asyncio.Event
CLOSE, RESET, STALL = "close", "reset", "stall"


def reset(transport: Any) -> None:
    """Close a connection by TCP's RST, as a host that dies or restarts does, rather than by an orderly FIN."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class UpstreamRequest:
    """One request as the model server received it."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head = head
        self.body = body
        lines = head.decode("latin-1").split("\r\n")
        self.line = lines[0]
        self.headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Side(asyncio.Protocol):
    """One connection to the model server."""

    def __init__(self, upstream: "Upstream") -> None:
        self.upstream = upstream
        self.received = b""
        self.task: asyncio.Task[None] | None = None
        self.may_write = asyncio.Event()
        self.may_write.set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.upstream.accepted += 1
        self.upstream.client_serials += [
            shown["serialNumber"] for shown in [transport.get_extra_info("peercert")] if shown
        ]
        self.upstream.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.upstream.open.discard(self)
        self.upstream.lost_at.append(asyncio.get_running_loop().time())
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, blank, rest = self.received.partition(b"\r\n\r\n")
        if not blank:
            return
        request = UpstreamRequest(head, b"")
        length = int(request.headers.get("content-length", "0"))
        if len(rest) < length:
            return
        request.body, self.received = rest[:length], rest[length:]
        self.upstream.requests.append(request)
        script = self.upstream.next_script(request)
        self.task = asyncio.get_running_loop().create_task(self.play(script))

    async def play(self, script: tuple[Step, ...]) -> None:
        for step in script:
            if isinstance(step, bytes):
                await self.may_write.wait()
                self.transport.write(step)
                self.upstream.bytes_written += len(step)
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif isinstance(step, asyncio.Event):
                await step.wait()
            elif step == CLOSE:
                self.transport.close()
            elif step == RESET:
                reset(self.transport)
            else:
                await asyncio.Event().wait()


class Upstream:
    """Plays a script of bytes, delays (seconds as float), events that are waited for, "close", "reset" and "stall" for
    every request.
    """

    CLOSE, RESET, STALL = CLOSE, RESET, STALL

    def __init__(self) -> None:
        self.requests: list[UpstreamRequest] = []
        self.accepted = 0
        self.client_serials: list[str] = []  # of the certificates that clients have shown
        self.open: set[_Side] = set()
        self.lost_at: list[float] = []
        self.bytes_written = 0
        self._always: tuple[Step, ...] = (STALL,)
        self._queue: deque[tuple[Step, ...]] = deque()
        self._answer: Callable[[UpstreamRequest], bytes | tuple[Step, ...]] | None = None
        self._server: asyncio.Server | None = None

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.get_running_loop().create_server(lambda: _Side(self), "127.0.0.1", 0, ssl=tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}/v1"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for side in tuple(self.open):
            side.transport.abort()
        await asyncio.sleep(0)

    def always(self, *script: Step) -> None:
        """Play this for every request from now on."""
        self._always = script

    def then(self, *script: Step) -> None:
        """Play this for the next request that has no script yet."""
        self._queue.append(script)

    def answering(self, answer: Callable[[UpstreamRequest], bytes | tuple[Step, ...]]) -> None:
        """Let every request from now on be answered by what it holds: by bytes, or by a script."""
        self._answer = answer

    def next_script(self, request: UpstreamRequest) -> tuple[Step, ...]:
        if self._queue:
            return self._queue.popleft()
        if self._answer is None:
            return self._always
        answer = self._answer(request)
        return answer if isinstance(answer, tuple) else (answer,)

    # what model servers say

    @staticmethod
    def whole(body: object, status: int = 200, headers: str = "") -> bytes:
        """A complete JSON reply."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {len(data)}\r\n\r\n"
        return head.encode() + data

    @staticmethod
    def stream_head(headers: str = "") -> bytes:
        """The head of a chunked event stream."""
        return (
            f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{headers}transfer-encoding: chunked\r\n\r\n"
        ).encode()

    @staticmethod
    def piece(data: bytes) -> bytes:
        """One chunk of the transfer coding."""
        return b"%x\r\n%b\r\n" % (len(data), data)

    END = b"0\r\n\r\n"

    @staticmethod
    def chunk(content: str | None = None, *, finish: str | None = None, index: int = 0, **more: object) -> bytes:
        """One event of a chat stream."""
        delta = {} if content is None else {"content": content}
        choice = {"index": index, "delta": delta, "finish_reason": finish}
        return Upstream.event({"id": "x", "object": "chat.completion.chunk", "choices": [choice], **more})

    @staticmethod
    def usage(prompt: int, completion: int, **more: object) -> bytes:
        """The usage-only event at a stream's end."""
        counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}
        return Upstream.event({"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": counts})

    @staticmethod
    def event(data: object) -> bytes:
        """One server-sent event."""
        return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"

    @staticmethod
    def streamed(*events: bytes) -> bytes:
        """A complete chunked event stream, each event in a chunk of its own."""
        return Upstream.stream_head() + b"".join(map(Upstream.piece, events)) + Upstream.END

    @staticmethod
    def completion(text: str = "Hi there", prompt: int = 3, output: int = 2, **more: object) -> dict[str, object]:
        """The body of a whole chat completion."""
        message = {"role": "assistant", "content": text}
        return {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "served-1",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output},
            **more,
        }


@pytest.fixture
async def new_upstream() -> AsyncIterator[Callable[..., Awaitable[Upstream]]]:
    """Start model servers on ports of their own."""
    started: list[Upstream] = []

    async def start(tls: ssl.SSLContext | None = None) -> Upstream:
        upstream = Upstream()
        await upstream.start(tls)
        started.append(upstream)
        return upstream

    yield start
    for upstream in started:
        await upstream.stop()


@pytest.fixture
async def upstream(new_upstream: Callable[[], Awaitable[Upstream]]) -> Upstream:
    """One model server."""
    return await new_upstream()


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Wait until a condition holds, at most `within` seconds."""

    async def wait(condition: Callable[[], object], within: float = 60.0) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while not condition():
            assert loop.time() < deadline, "the condition did not come to hold in time"
            await asyncio.sleep(0.002)

    return wait
