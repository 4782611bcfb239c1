"""A gateway process before a model server that ignores what it is asked for, and what clients get of it."""

import asyncio
import contextlib
import json
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import yaml

from bench.crashing.service import Service
from contracts.recording.records import RequestRecord, decode_record
from gateway.records.journal import Journal, unpack_entry
from tests.gateway.model_server import Step, Upstream, UpstreamRequest

WORDS: Final = [f"word{place:03d}" for place in range(300)]
THOUGHTS: Final = [f"thought{place:03d}" for place in range(300)]
PATTERNS: Final = ("burst", "paced", "several", "split", "giant", "unreported")
SECONDS: Final = 30.0
_GAP_SECONDS: Final = 0.03
_SPLIT_BYTES: Final = 97


def chunks(words: Sequence[str], pattern: str) -> list[str]:
    """Return the texts of a stream's chunks; a word is a token."""
    several = {"several": 8, "giant": len(words) or 1}.get(pattern, 1)
    return [" ".join(words[at : at + several]) + " " for at in range(0, len(words), several)]


def played(pattern: str, thoughts: Sequence[str], words: Sequence[str], finish: str) -> tuple[Step, ...]:
    """Return what the server plays for a stream of this pattern."""

    def event(field: str, text: str) -> bytes:
        return Upstream.event({"id": "x", "choices": [{"index": 0, "delta": {field: text}, "finish_reason": None}]})

    events = [event("reasoning_content", text) for text in chunks(thoughts, pattern)]
    events += [event("content", text) for text in chunks(words, pattern)]
    events.append(Upstream.chunk(finish=finish))
    if pattern != "unreported":
        events.append(Upstream.usage(10, len(thoughts) + len(words)))
    events.append(Upstream.event(b"[DONE]"))
    if pattern == "paced":
        steps: list[Step] = [Upstream.stream_head()]
        for one in events:
            steps += [Upstream.piece(one), _GAP_SECONDS]
        return (*steps, Upstream.END)
    data = Upstream.streamed(*events)
    if pattern != "split":
        return (data,)
    return tuple(step for at in range(0, len(data), _SPLIT_BYTES) for step in (data[at : at + _SPLIT_BYTES], 0.001))


class IgnoringServer(Upstream):
    """Plays what `script` holds for the word that the request's prompt says."""

    def __init__(self) -> None:
        super().__init__()
        self.script: dict[str, tuple[Step, ...]] = {}

    def next_script(self, request: UpstreamRequest) -> tuple[Step, ...]:
        return self.script[request.json["messages"][0]["content"]]


class Stage:
    """`async with` starts both; `records` gives the gateway's, by tenant, once it has ended."""

    def __init__(self, tenants: dict[str, dict[str, Any]]) -> None:
        """Each tenant has one key, with these fields of it and, under `budget` and `limit`, its rules."""
        self.upstream = IgnoringServer()
        self._tenants = tenants
        self._folder = tempfile.TemporaryDirectory(prefix="tollkeeper-allowance-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])

    async def __aenter__(self) -> Self:
        await self.upstream.start()
        home = Path(self._folder.name)
        file = home / "gateway.yaml"
        file.write_text(yaml.safe_dump(self._configuration()))
        environment = {"TOLLKEEPER_GATEWAY_CONFIG": str(file), "TOLLKEEPER_GATEWAY_PORT": str(self.port)}
        self._gateway = Service("gateway", "gateway", home, f"http://127.0.0.1:{self.port}/ready", environment)
        await asyncio.to_thread(self._gateway.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._gateway.end)
        await self.upstream.stop()
        self._folder.cleanup()

    async def records(self) -> dict[str, RequestRecord]:
        """Stop the gateway, and return the record of each tenant's request."""
        await asyncio.to_thread(self._gateway.stop)
        journal = Journal(self._gateway.data / "journal", max_bytes=1 << 30, when_full="refuse")
        entries = journal.read(journal.cursor, max_entries=100_000, max_bytes=1 << 30)
        found = [decode_record(unpack_entry(entry)[1]) for entry in entries]
        journal.close()
        return {record.who.tenant: record for record in found if isinstance(record, RequestRecord)}

    async def ask(self, tenant: str, **fields: object) -> tuple[str, str]:
        """Ask for a chat by what the server has a script for, and return the answer's head and body."""
        body = json.dumps({"model": "mock", "messages": [{"role": "user", "content": tenant}], **fields}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {_key(tenant)}\r\n"
            f"content-type: application/json\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        answer = await asyncio.wait_for(reader.read(-1), SECONDS)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        head, _, rest = answer.decode().partition("\r\n\r\n")
        return head, rest

    def _configuration(self) -> dict[str, Any]:
        shared = {"level": "tenant"}
        return {
            "keys": [
                {"key": _key(name), "tenant": name, "id": f"key-{name}", **fields.get("key", {})}
                for name, fields in self._tenants.items()
            ],
            "budgets": [
                {"id": f"budget-{name}", "tenant": name, "period": "total", **shared, **fields["budget"]}
                for name, fields in self._tenants.items()
                if "budget" in fields
            ],
            "limits": [
                {
                    "id": f"limit-{name}",
                    "tenant": name,
                    "window": "minute",
                    "metric": "tokens",
                    **shared,
                    **fields["limit"],
                }
                for name, fields in self._tenants.items()
                if "limit" in fields
            ],
            "pools": [
                {
                    "name": "mock",
                    "targets": [{"name": "mock", "kind": "openai_http", "url": self.upstream.url}],
                }
            ],
            "models": [{"name": "mock", "pool": "mock"}],
            "prices": [{"model": "mock", "version": "v1", "usd_per_mtok": {"input_text": "1", "output_text": "2"}}],
        }


def delivered(body: str, words: Sequence[str]) -> int:
    """Return how many of the server's tokens a client got."""
    return sum(word in body for word in words)


def _key(tenant: str) -> str:
    return "tk-" + tenant.replace("-", "").ljust(43, "A")[:43]
