"""A gateway of its own in front of model servers that a scenario plays, all on free ports, gone at the end."""

import asyncio
import json
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from bench.crashing.service import Service

KEY: Final = "tk-" + "R" * 43
_CLIENT_SECONDS: Final = 20.0

Json = dict[str, Any]
Write = Callable[[bytes], Awaitable[None]]
Answer = Callable[[Json, Write], Awaitable[None]]


class ModelServer:
    """A server whose every request is answered by `answer`, which is given its body and how to write."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def stop(self) -> None:
        """Accept no further connection, and end those there are."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)

        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
                await self._answer(json.loads(await reader.readexactly(length)), write)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


def whole(body: Json) -> bytes:
    """Return a whole JSON reply."""
    data = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)


HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END: Final = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def piece(chunk: Json) -> bytes:
    """Return one chunk of a stream."""
    event = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


def completion(text: str, tokens: int) -> Json:
    """Return the body of a whole chat completion."""
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "served-1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens},
    }


def target(name: str, url: str, **more: Any) -> Json:
    """Return a target over HTTP, as a gateway's file has it."""
    return {"name": name, "kind": "openai_http", "url": url, **more}


@asynccontextmanager
async def gateway(
    pools: list[Json], routes: list[Json] | None = None, rules: Json | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    """Run a gateway with a model for each pool, of the same name; yield a client with a key.

    `rules` are the file's limits, budgets and prices.
    """
    with tempfile.TemporaryDirectory(prefix="tollkeeper-regression-") as folder:
        home = Path(folder)
        file = home / "gateway.yaml"
        models = [{"name": pool["name"], "pool": pool["name"]} for pool in pools]
        keys = [{"key": KEY, "tenant": "acme"}]
        config = {"keys": keys, "pools": pools, "models": models, "routes": routes or [], **(rules or {})}
        file.write_text(yaml.safe_dump(config))
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        environment: Mapping[str, str] = {
            "TOLLKEEPER_GATEWAY_CONFIG": str(file),
            "TOLLKEEPER_GATEWAY_PORT": str(port),
            "TOLLKEEPER_DRAIN_SECONDS": "0.2",
        }
        url = f"http://127.0.0.1:{port}"
        service = Service("gateway", "gateway", home, f"{url}/ready", environment)
        try:
            await asyncio.to_thread(service.start)
            headers = {"authorization": f"Bearer {KEY}"}
            timeout = httpx.Timeout(_CLIENT_SECONDS)
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout, trust_env=False) as client:
                yield client
        finally:
            service.end()
