"""A gateway that is killed while targets work for it: is there one record of every request that was sent, and paid?

A model server notes the id of every request that reaches it. The gateway is killed with `kill -9` in the middle of
streams and whole answers, of the fast and of the general path, and started again; then ids, records and the budget
are compared.
"""

import asyncio
import contextlib
import json
import re
import tempfile
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, Final

from bench.fleet.connection import Connection
from bench.fleet.fleet import key_of, total_budget
from bench.fleet.gateway import GatewayProcess
from bench.report import Report
from contracts.pricing.money import PICO_USD_PER_USD
from contracts.recording.records import RequestRecord

_KILLS: Final = 3
_AT_ONCE: Final = 32
_BUDGET_USD: Final = 100
_UNTIL_KILL_SECONDS: Final = 1.2
_CHUNK_SECONDS: Final = 0.02
_SLOW_CHUNKS: Final = 1000
_WAIT_SECONDS: Final = 20.0
_MODEL: Final = "m"
_RATIO: Final = re.compile(r'^tollkeeper_budget_used_ratio\{budget="spent"\} (\S+)$', re.MULTILINE)


def measure(report: Report) -> None:
    """Kill a gateway three times with requests in progress, and compare its books with what the model server saw."""
    found = asyncio.run(_run())
    sent, records, spent, killed = found
    copies = Counter(record.request_id.hex() for record in records)
    charged = sum(record.charged_pico_usd or 0 for record in records)
    missing = len(sent - copies.keys())
    doubled = sum(count - 1 for count in copies.values())
    report.add("gateway_killed_under_way", killed, "requests", must=_KILLS * _AT_ONCE, n=_KILLS)
    report.add("gateway_killed_without_record", missing, "requests", must=0, better="lower", n=len(sent))
    report.add("gateway_killed_doubled", doubled, "records", must=0, better="lower", n=len(records))
    lost = [record for record in records if record.error_code == "lost_in_crash"]
    incomplete = sum(not _is_complete(record) for record in lost) + abs(killed - len(lost))
    report.add("gateway_killed_incomplete", incomplete, "records", must=0, better="lower", n=len(lost))
    report.add(
        "gateway_killed_budget_difference", abs(spent - charged), "pico-USD", must=0, better="lower", n=len(records)
    )


def _is_complete(record: RequestRecord) -> bool:
    who = record.who
    is_known = (who.tenant, who.key_id, record.model, record.pool, record.replica) == ("crash", "key_0", "m", "p", "u")
    is_priced = bool(record.cost_pico_usd) and bool(record.charged_pico_usd) and bool(record.usage.input_tokens)
    return is_known and is_priced and record.outcome == "error" and record.count_method == "estimate"


async def _run() -> tuple[set[str], list[RequestRecord], int, int]:
    """Return the ids that reached the model, all records, the budget's total and how many requests were cut."""
    server = _Model()
    await server.start()
    with tempfile.TemporaryDirectory(prefix="tollkeeper-killed-") as home:
        gateway = GatewayProcess("gw", Path(home), _configuration(server.port))
        try:
            await gateway.start()
            for _ in range(_KILLS):
                await _ask_many(gateway, server)
                gateway.kill()
                await gateway.start()
            await _ask(gateway.port, {"stream": False, "max_tokens": 1})
            await gateway.is_quiet(_WAIT_SECONDS)
            await gateway.stop()
            await gateway.start()  # the total is that of a gateway that has read everything back
            spent = await asyncio.to_thread(_spent_pico_usd, gateway.port)
        finally:
            await gateway.stop()
            gateway.kill()
            await server.stop()
        return server.ids, gateway.records(), spent, server.cut


async def _ask_many(gateway: GatewayProcess, server: "_Model") -> None:
    """Let some requests be answered, then leave others in progress: half of them streams, half on the general path."""
    for streamed in (False, True):
        await _ask(gateway.port, {"stream": streamed, "max_tokens": 1})
    before = server.under_way
    tasks = []
    for number in range(_AT_ONCE):
        body: dict[str, Any] = {"stream": bool(number & 1), "max_tokens": 2000}
        more = {"x-tollkeeper-tags": f"job={number}"} if number & 2 else {}
        tasks.append(asyncio.create_task(_ask(gateway.port, body, more)))
    async with asyncio.timeout(_WAIT_SECONDS):
        while server.under_way < before + _AT_ONCE:
            await asyncio.sleep(0.02)
    await asyncio.sleep(_UNTIL_KILL_SECONDS)
    server.cut += _AT_ONCE
    gateway.kill()
    await asyncio.gather(*tasks)


async def _ask(port: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
    """Ask for one answer and read it as far as it comes."""
    data = json.dumps({"model": _MODEL, "messages": [{"role": "user", "content": "word " * 40}], **body}).encode()
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
        f"Authorization: Bearer {key_of(0)}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    connection: Connection | None = None
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
        connection = await Connection.open(port)
        await connection.ask(head.encode() + data)
    if connection is not None:
        connection.close()


def _spent_pico_usd(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        found = _RATIO.search(reply.read().decode())
    return 0 if found is None else round(float(found[1]) * _BUDGET_USD * PICO_USD_PER_USD)


def _configuration(port: int) -> dict[str, Any]:
    prices = {"input_text": "1", "output_text": "2"}
    return {
        "keys": [{"key": key_of(0), "tenant": "crash", "id": "key_0"}],
        "pools": [
            {"name": "p", "targets": [{"name": "u", "kind": "openai_http", "url": f"http://127.0.0.1:{port}/v1"}]}
        ],
        "models": [{"name": _MODEL, "pool": "p"}],
        "prices": [{"model": _MODEL, "version": "bench/1", "usd_per_mtok": prices}],
        "budgets": [total_budget("spent", "crash", str(_BUDGET_USD))],
    }


class _Model:
    """A model server: an answer of one token comes at once, any other takes long. It notes whose requests it got."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.under_way = 0  # slow ones that have reached it
        self.cut = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
                headers = dict(line.split(": ", 1) for line in head[1:] if line)
                request = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))))
                self.ids.add(headers["x-request-id"].replace("-", ""))
                tokens = request["max_tokens"]
                self.under_way += tokens > 1
                await (_stream if request.get("stream") else _whole)(writer, tokens)
        self._tasks.discard(task)
        writer.close()


async def _whole(writer: asyncio.StreamWriter, tokens: int) -> None:
    if tokens > 1:
        await asyncio.sleep(_CHUNK_SECONDS * _SLOW_CHUNKS)
    message = {"role": "assistant", "content": "hi"}
    body = _body({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": _usage(tokens)})
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()


async def _stream(writer: asyncio.StreamWriter, tokens: int) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for number in range(tokens):
        delta = {"content": "hi "} | ({} if number else {"role": "assistant"})
        _write_event(writer, _body({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}, "chunk"))
        await writer.drain()
        await asyncio.sleep(_CHUNK_SECONDS)
    _write_event(writer, _body({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "chunk"))
    _write_event(writer, _body({"choices": [], "usage": _usage(tokens)}, "chunk"))
    _write_event(writer, b"[DONE]")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _write_event(writer: asyncio.StreamWriter, data: bytes) -> None:
    event = b"data: " + data + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(event), event))


def _body(fields: dict[str, Any], kind: str = "") -> bytes:
    name = f"chat.completion.{kind}" if kind else "chat.completion"
    return json.dumps({"id": "x", "object": name, "created": 1, "model": _MODEL, **fields}).encode()


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 50, "completion_tokens": tokens, "total_tokens": 50 + tokens}
