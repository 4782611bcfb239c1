"""A server that answers as the data plane does, from a script, and one request after the other where asked to."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

MODELS = json.dumps({"data": [{"id": "small"}]})


def chunk(text: str) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]})


def usage(prompt: int, completion: int) -> str:
    return json.dumps({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


@dataclass
class StreamingGateway:
    """Answers chats with as many tokens as `max_tokens` says, after `service_seconds`, which only one has at a time.

    `events` replace the stream's, `status` with `body` the whole answer; `knows_keys` is what GET /v1/models says.
    """

    service_seconds: float = 0.0
    events: Sequence[str] | None = None
    status: int = 200
    body: str = ""
    knows_keys: bool = True
    port: int = 0
    chats: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)  # headers, body
    open: set[asyncio.StreamWriter] = field(default_factory=set)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                headers = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                status, kind, answer = await self.answer(head, headers, body)
                top = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(answer)}\r\n\r\n"
                writer.write(f"{top}{answer}".encode())
                await writer.drain()
        self.open.discard(writer)
        writer.close()

    async def answer(self, head: str, headers: dict[str, str], body: bytes) -> tuple[int, str, str]:
        if head.startswith("GET /v1/models "):
            return (200 if self.knows_keys else 401), "application/json", MODELS
        asked = json.loads(body)
        self.chats.append((headers, asked))
        async with self._turn:
            await asyncio.sleep(self.service_seconds)
        is_measurement = headers["x-tollkeeper-run-id"].endswith("-measurement")
        if self.status != 200 and not is_measurement:
            return self.status, "application/json", self.body
        words = len(asked["messages"][0]["content"].split())
        count = asked["max_tokens"]
        events = [*(chunk(" a") for _ in range(count)), usage(words, count), "[DONE]"]
        if self.events is not None and not is_measurement:
            events = list(self.events)
        return 200, "text/event-stream", "".join(f"data: {event}\n\n" for event in events)


@asynccontextmanager
async def serving(gateway: StreamingGateway) -> AsyncIterator[StreamingGateway]:
    server = await asyncio.start_server(gateway.serve, "127.0.0.1", 0)
    gateway.port = server.sockets[0].getsockname()[1]
    async with server:
        yield gateway
        server.close()
        for writer in tuple(gateway.open):
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
