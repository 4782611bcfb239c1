"""An MCP server that does as it is told, byte for byte: for what the official server would never send."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

SCHEMA = {"type": "object"}


class Call:
    """One request to the server, and the means to answer it."""

    def __init__(self, headers: dict[str, str], message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.headers = headers
        self.message = message
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def head(self, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self.write(f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{more}".encode())

    def whole(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.head(status, **headers)
        self.write(b"content-length: %d\r\n\r\n" % len(body) + body)

    def result(self, result: Any, **headers: str) -> None:
        answer = {"jsonrpc": "2.0", "id": self.message.get("id"), "result": result}
        self.whole(json.dumps(answer).encode(), 200, **headers)

    def error(self, code: int, message: str, status: int = 200, data: Any = None) -> None:
        error = {"code": code, "message": message, **({"data": data} if data is not None else {})}
        answer = {"jsonrpc": "2.0", "id": self.message.get("id"), "error": error}
        self.whole(json.dumps(answer).encode(), status)

    def stream(self) -> None:
        self.head(kind="text/event-stream", transfer_encoding="chunked")
        self.write(b"\r\n")

    def event(self, message: dict[str, Any]) -> None:
        data = b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"
        self.write(b"%x\r\n" % len(data) + data + b"\r\n")

    def end(self) -> None:
        self.write(b"0\r\n\r\n")


Handler = Callable[[Call], Awaitable[None]]


class RawMcp:
    """Speaks the modern revision, with one tool `go` unless told otherwise; `on_call` answers its calls."""

    def __init__(self, on_call: Handler, tools: list[Any] | None = None) -> None:
        self.on_call = on_call
        self.on_list: Handler | None = None
        self.on_discover: Handler | None = None
        self.on_other: Handler | None = None
        self.on_form: Callable[[dict[str, str]], Any] | None = None  # form to JSON
        self.on_get: Callable[[str], tuple[int, str]] | None = None  # path to status and JSON
        self.tools = [{"name": "go", "inputSchema": SCHEMA}] if tools is None else tools
        self.calls: list[Call] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/mcp"

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
                if head[0].startswith("GET "):
                    self._get(head[0].split(" ")[1], writer)
                    await writer.drain()
                    continue
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                if "form" in headers.get("content-type", ""):
                    self._form(body, writer)
                    await writer.drain()
                    continue
                await self._answer(Call(headers, json.loads(body), writer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    def _get(self, path: str, writer: asyncio.StreamWriter) -> None:
        status, text = (404, "{}") if self.on_get is None else self.on_get(path)
        body = text.encode()
        Call({}, {}, writer).whole(body, status, location="http://169.254.169.254/")

    def _form(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        assert self.on_form is not None
        Call({}, {}, writer).whole(json.dumps(self.on_form(dict(parse_qsl(body.decode())))).encode())

    async def _answer(self, call: Call) -> None:
        self.calls.append(call)
        method = call.message.get("method", "")
        if method == "server/discover":
            if self.on_discover is not None:
                await self.on_discover(call)
            else:
                call.result({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}})
        elif method == "tools/list":
            if self.on_list is not None:
                await self.on_list(call)
            else:
                call.result({"resultType": "complete", "tools": self.tools})
        elif method == "tools/call":
            await self.on_call(call)
        elif self.on_other is not None:
            await self.on_other(call)
        else:
            call.whole(b"", 202)
