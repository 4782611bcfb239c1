"""Real MCP servers (the official SDK's, in a thread each), raw ones that misbehave, and clients of the gateway."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx2
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from contracts.recording.records import RequestRecord
from tests.gateway.conftest import KEY, NO_AUTHORITIES, Running
from tests.gateway.conftest import configuration as configuration
from tests.gateway.conftest import scripted as scripted
from tests.gateway.mcp.raw_server import Handler, RawMcp

MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}


class ServedMcp:
    """An MCP server that serves in a thread of its own."""

    def __init__(self, build: Callable[[str], Any]) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/mcp"
        self._server = uvicorn.Server(uvicorn.Config(build(self.url), log_level="error", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 30
        while not self._server.started and time.monotonic() < deadline:
            time.sleep(0.01)

    def leave(self) -> None:
        """Begin to end."""
        self._server.should_exit = True

    def stop(self) -> None:
        self.leave()
        self._thread.join(10)
        self._socket.close()


def weather_server(seen: list[dict[str, str]] | None = None) -> MCPServer:
    """A server with a few tools, which notes the headers of its calls in `seen`."""
    server = MCPServer("weather")

    @server.tool()
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        return f"sunny in {city}"

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def say(text: str) -> str:
        """Return a text."""
        return text

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ToolError("the roof is gone")

    @server.tool()
    def long(size: int) -> str:
        """Return a long text."""
        return "x" * size

    return server


@pytest.fixture(scope="session")
def leaving() -> Iterator[list[ServedMcp]]:
    """Servers of earlier tests, which end meanwhile: they look a few times a second whether they shall."""
    servers: list[ServedMcp] = []
    yield servers
    for one in servers:
        one.stop()


@pytest.fixture
def serve_mcp(leaving: list[ServedMcp]) -> Iterator[Callable[..., ServedMcp]]:
    """Serve an SDK's server over streamable HTTP: given, or made once its address is known."""
    running: list[ServedMcp] = []

    def serve(server: MCPServer | Callable[[str], MCPServer] | None = None, **options: Any) -> ServedMcp:
        def build(url: str) -> Any:
            made = server if isinstance(server, MCPServer) else weather_server() if server is None else server(url)
            return made.streamable_http_app(**options)

        running.append(ServedMcp(build))
        return running[-1]

    yield serve
    for one in running:
        one.leave()
    leaving += running


@pytest.fixture
async def raw() -> AsyncIterator[Callable[..., Awaitable[RawMcp]]]:
    """Serve what a test says, byte for byte."""
    running: list[RawMcp] = []

    async def start(on_call: Handler, tools: list[Any] | None = None) -> RawMcp:
        server = RawMcp(on_call, tools)
        await server.start()
        running.append(server)
        return server

    yield start
    for one in running:
        await one.stop()


def with_servers(*servers: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A gateway's configuration with MCP servers."""
    return configuration(("scripted-1", [scripted()]), mcp_servers=list(servers), **more)


@contextlib.asynccontextmanager
async def sdk_client(gateway: Running, path: str = "/mcp", key: str = KEY, **options: Any) -> AsyncIterator[Client]:
    """The official SDK's client, connected to the gateway."""
    headers = {"authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=20, verify=NO_AUTHORITIES) as http:
        url = f"http://127.0.0.1:{gateway.port}{path}"
        async with Client(streamable_http_client(url, http_client=http), cache=None, **options) as client:
            yield client


async def post(
    gateway: Running,
    method: str,
    params: dict[str, Any] | None = None,
    *,
    path: str = "/mcp",
    headers: dict[str, str] | None = None,
    key: str = KEY,
    id: Any = 1,
    modern: bool = True,
    whole: Any = None,
) -> tuple[int, dict[str, str], Any]:
    """Send one message as raw HTTP. Returns status, headers and JSON, of a stream that of its last event."""
    given = dict(params or {})
    own = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {key}"}
    if modern:
        given.setdefault("_meta", META)
        own |= {"mcp-protocol-version": MODERN, "mcp-method": method}
        if method == "tools/call":
            own["mcp-name"] = given.get("name", "")
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": given} if whole is None else whole
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    own |= {"content-type": "application/json", **(headers or {})}
    async with httpx2.AsyncClient(timeout=30, verify=NO_AUTHORITIES) as http:
        reply = await http.post(
            f"http://127.0.0.1:{gateway.port}{path}",
            content=body,
            headers={name: value for name, value in own.items() if value},
        )
    text = reply.content.decode()  # strictly
    if reply.headers.get("content-type", "").startswith("text/event-stream"):
        text = [line[5:] for line in text.splitlines() if line.startswith("data:")][-1]
    return reply.status_code, dict(reply.headers), json.loads(text) if text else None


async def call(gateway: Running, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Call a tool as a modern client; return its result."""
    _, _, answer = await post(gateway, "tools/call", {"name": tool, "arguments": arguments or {}}, **more)
    result: dict[str, Any] = answer["result"]
    return result


def tool_calls(gateway: Running) -> list[RequestRecord]:
    """The records of tool calls."""
    return [record for record in gateway.requests() if record.operation == "execute_tool"]
