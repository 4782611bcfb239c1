"""Sessions of coding agents to replay: a provider that counts as it is asked to, a tool, and agents that note costs.

A session is a growing prompt: each turn sends all before it, most of it from the provider's cache. The provider speaks
Anthropic's Messages API, so that a target with `apis: [messages]` passes requests through. What a turn costs is worked
out here, from the usage that the agent received and the prices below, apart from the gateway's own arithmetic.
"""

import asyncio
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from bench.fleet.connection import Answer, Connection, post_request

MODEL: Final = "replayed-agents"
TOOL: Final = "repo__search"
USD_PER_MTOK: Final = {"input_text": "3", "cache_read_text": "0.3", "output_text": "15"}
TOOL_USD: Final = "0.0007"
INPUT_PICO_USD: Final = 3_000_000  # a token
CACHED_PICO_USD: Final = 300_000
OUTPUT_PICO_USD: Final = 15_000_000
TOOL_PICO_USD: Final = 700_000_000  # a call
_OVERLOADED: Final = (503, 529)
_MOST_RETRIES: Final = 20
_RETRY_SECONDS: Final = 0.5
MOST_TURNS: Final = 200  # of an agent in a loop: more means that nothing stops it
_BYTES_PER_TOKEN: Final = 5
_TAG: Final = re.compile(rb"\[\[output=(\d+) cached=(\d+)\]\]")
_EVENTS_PER_WRITE: Final = 20
_SYSTEM: Final = "You are a coding agent. Read files before you change them, and run the tests afterwards. " * 8
_TOOLS: Final = [
    {
        "name": name,
        "description": f"{name} a file of the repository, by its path below the root.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    }
    for name in ("Read", "Edit", "Bash")
]
_MCP_META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def usage_pico_usd(usage: dict[str, int]) -> int:
    """Return what a provider's usage object costs."""
    return (
        usage.get("input_tokens", 0) * INPUT_PICO_USD
        + usage.get("cache_read_input_tokens", 0) * CACHED_PICO_USD
        + usage.get("output_tokens", 0) * OUTPUT_PICO_USD
    )


class AgentProvider:
    """Answers `/v1/messages` and, as an MCP server with one tool, `/mcp`, on a port of its own."""

    def __init__(self) -> None:
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 22)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def target(self) -> dict[str, Any]:
        """Return the target of a gateway's configuration."""
        return {"kind": "openai_http", "url": f"http://127.0.0.1:{self._port}/v1", "settings": {"apis": ["messages"]}}

    @property
    def mcp_server(self) -> dict[str, Any]:
        """Return the MCP server of a gateway's configuration."""
        return {"name": "repo", "url": f"http://127.0.0.1:{self._port}/mcp", "price_usd": TOOL_USD}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
                body = await reader.readexactly(int(length.group(1)) if length else 0)
                if head.startswith(b"POST /mcp"):
                    writer.write(_mcp_answer(json.loads(body)))
                else:
                    await self._stream(writer, body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        """Write an answer of as many words as the newest turn asks for: a word is a token."""
        words, cached = (int(given) for given in _TAG.findall(body)[-1])
        prompt = len(body) // _BYTES_PER_TOKEN
        usage = {"input_tokens": prompt - min(cached, prompt), "cache_read_input_tokens": min(cached, prompt)}
        start = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": []}
        block = {"type": "text", "text": ""}
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {**start, "usage": usage | {"output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": block},
        ]
        word = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " word"}}
        events += [word] * words
        events.append({"type": "content_block_stop", "index": 0})
        end = {"stop_reason": "end_turn", "stop_sequence": None}
        events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": words}})
        events.append({"type": "message_stop"})
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for first in range(0, len(events), _EVENTS_PER_WRITE):
            part = events[first : first + _EVENTS_PER_WRITE]
            data = b"".join([f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in part])
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()
        writer.write(b"0\r\n\r\n")


def _mcp_answer(message: dict[str, Any]) -> bytes:
    method = message["method"]
    result: dict[str, Any] = {"resultType": "complete"}
    if method == "server/discover":
        result |= {"supportedVersions": ["2026-07-28"], "capabilities": {}}
    elif method == "tools/list":
        result["tools"] = [{"name": TOOL.partition("__")[2], "inputSchema": {"type": "object"}}]
    else:
        result["content"] = [{"type": "text", "text": "src/app.py:12: def main() -> None:"}]
    data = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)


@dataclass(slots=True)
class SessionSeen:
    """What an agent saw of its session."""

    name: str
    turns: int = 0
    tool_calls: int = 0
    pico_usd: int = 0  # by the usage that it received
    output_tokens: int = 0  # words that it received
    refused: int = 0  # requests that a cap or budget refused
    retried: int = 0  # requests that were to be sent again, as agents do when a gateway is overloaded
    is_cut: bool = False  # a stream ended before the provider's answer did
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent's plan: how many turns it takes, and how long its answers are. `loops`: it never stops by itself."""

    name: str
    key: str
    output_tokens: tuple[int, ...]
    loops: bool = False


def agents(count: int, prefix: str, key: str, *, seed: int) -> list[Agent]:
    """Return agents with 2 to 7 turns of 5 to 80 tokens, the same for a seed."""
    draw = random.Random(seed)
    turns = [tuple(draw.randint(5, 80) for _ in range(draw.randint(2, 7))) for _ in range(count)]
    return [Agent(f"{prefix}-{number}", key, lengths) for number, lengths in enumerate(turns)]


async def replay(planned: Sequence[Agent], ports: Sequence[int], at_once: int) -> list[SessionSeen]:
    """Let agents work, so many at once, each turn at another gateway; return what they saw, in their order."""
    room = asyncio.Semaphore(at_once)

    async def work(number: int, agent: Agent) -> SessionSeen:
        async with room:
            return await _Session(agent, ports, number).run()

    return await asyncio.gather(*(work(number, agent) for number, agent in enumerate(planned)))


class _Session:
    """One agent at work."""

    def __init__(self, agent: Agent, ports: Sequence[int], number: int) -> None:
        self._agent = agent
        self._ports = ports
        self._next = number
        self._seen = SessionSeen(agent.name)
        self._headers = {"x-claude-code-session-id": agent.name, "x-tollkeeper-repo": "github.com/acme/app"}
        self._messages: list[dict[str, Any]] = []
        self._cached = 0

    async def run(self) -> SessionSeen:
        lengths = self._agent.output_tokens
        for turn in range(MOST_TURNS if self._agent.loops else len(lengths)):
            answer = await self._turn(lengths[turn % len(lengths)])
            if answer.status == 200 and turn % 2 == 0:
                await self._call_tool()
            if self._agent.loops and self._seen.refused:
                break
        return self._seen

    async def _turn(self, words: int) -> Answer:
        tag = f"[[output={words} cached={self._cached}]]"
        asked = {"role": "user", "content": f"Go on with the task, and show what has changed. {tag}"}
        body = {
            "model": MODEL,
            "max_tokens": 4096,
            "stream": True,
            "system": _SYSTEM,
            "tools": _TOOLS,
            "messages": [*self._messages, asked],
        }
        answer = await self._ask(post_request("/v1/messages", self._agent.key, body, self._headers))
        if answer.status == 429:
            self._seen.refused += 1
        elif answer.status != 200 or not answer.is_whole:
            self._seen.faults.append(f"{answer.status}: {answer.body[:300]!r}")
        else:
            usage = answer.message_usage
            self._seen.turns += 1
            self._seen.output_tokens += answer.tokens
            self._seen.is_cut = self._seen.is_cut or answer.tokens < words
            self._seen.pico_usd += usage_pico_usd(usage | {"output_tokens": answer.tokens})
            self._cached = usage.get("input_tokens", 0) + usage.get("cache_read_input_tokens", 0)
            self._messages += [asked, {"role": "assistant", "content": answer.text.strip() or "nothing"}]
        return answer

    async def _call_tool(self) -> None:
        params = {"name": TOOL, "arguments": {"text": f"turn {self._seen.turns}"}, "_meta": _MCP_META}
        body = {"jsonrpc": "2.0", "id": self._seen.turns, "method": "tools/call", "params": params}
        headers = {
            "x-tollkeeper-conversation-id": self._agent.name,
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": TOOL,
            "accept": "application/json, text/event-stream",
        }
        answer = await self._ask(post_request("/mcp", self._agent.key, body, headers))
        result = answer.json.get("result", {}) if answer.status == 200 else {}
        if result and not result.get("isError"):
            self._seen.tool_calls += 1
            self._seen.pico_usd += TOOL_PICO_USD
        elif answer.status == 200:
            self._seen.refused += 1
        else:
            self._seen.faults.append(f"{answer.status}: {answer.body[:300]!r}")

    async def _ask(self, request: bytes) -> Answer:
        for _ in range(_MOST_RETRIES):
            connection = await Connection.open(self._ports[self._next % len(self._ports)])
            self._next += 1
            try:
                answer = await connection.ask(request)
            finally:
                connection.close()
            if answer.status not in _OVERLOADED:
                break
            self._seen.retried += 1
            await asyncio.sleep(_RETRY_SECONDS)
        return answer
