"""A damaged sector of a journal or a spool: does it cost more entries than it overlaps, and is each of these named?

A gateway without a collector answers chats, and a collector without a store takes batches; both are killed. Then 4 KiB
of their files are zeroed or made random, at the beginning, at a quarter and at the end, or a whole file is zeroed; they
are started again, asked what is missing, and what is left in the files is compared with what was there.
"""

import asyncio
import json
import random
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from backends.segment_log.segments import Entry, SegmentLog
from backends.telemetry.otlp import LOGS_PATH, build_export_request
from bench.crashing.service import Service
from bench.fleet.connection import Connection
from bench.fleet.fleet import key_of
from bench.fleet.gateway import GatewayProcess, free_port
from bench.regressions.model_servers import Json, ModelServer, Write, target, whole
from bench.report import Report
from contracts.recording.ids import uuid7
from contracts.recording.records import EVENT_NAMES, RequestRecord, encode_record

_SECTOR_BYTES: Final = 4096
_CHATS: Final = 300
_BATCHES: Final = 120
_RECORDS: Final = 3  # of a batch
_KEY: Final = "bench-signing-key-of-32-characters"
_ALL_BYTES: Final = 1 << 40


class _Damage(NamedTuple):
    """What is done to a file: a share of its length, and whether it gets zeros there."""

    place: float
    is_zeroed: bool = True
    is_whole: bool = False


_DAMAGES: Final = (
    _Damage(0.0),
    _Damage(0.25),
    _Damage(0.25, is_zeroed=False),
    _Damage(1.0),
    _Damage(0.0, is_whole=True),
)


def measure(report: Report) -> None:
    """Damage the files of a gateway and of a collector that were killed, in five ways each."""
    for name, drill in (("journal", _drill_journal), ("spool", _drill_spool)):
        entries, overlapping, beyond, unnamed = asyncio.run(drill())
        wanted = _CHATS if name == "journal" else _BATCHES
        report.add(f"damaged_sector_{name}_entries", entries, "entries", must=wanted * len(_DAMAGES), n=len(_DAMAGES))
        report.add(f"damaged_sector_{name}_lost_beyond", beyond, "entries", must=0, better="lower", n=overlapping)
        report.add(f"damaged_sector_{name}_unnamed", unnamed, "entries", must=0, better="lower", n=overlapping)


async def _drill_journal() -> tuple[int, int, int, int]:
    server = ModelServer(_answer)
    await server.start()
    with tempfile.TemporaryDirectory(prefix="tollkeeper-damaged-") as home:
        gateway = GatewayProcess("gw", Path(home), _configuration(server.url))
        try:
            await gateway.start()
            connection = await Connection.open(gateway.port)
            for _ in range(_CHATS):
                answer = await connection.ask(_REQUEST)
                assert answer.status == 200, answer.status
            connection.close()
            gateway.kill()

            async def said() -> Json:
                await gateway.start()
                found = (await gateway.health()).get("journal_missing", {})
                gateway.kill()
                return dict(found)

            return await _each(Path(home) / "gw" / "journal", said)
        finally:
            gateway.kill()
            await server.stop()


async def _drill_spool() -> tuple[int, int, int, int]:
    with tempfile.TemporaryDirectory(prefix="tollkeeper-damaged-") as home:
        port, health = free_port(), free_port()
        environment = {
            "TOLLKEEPER_COLLECTOR_PORT": str(port),
            "TOLLKEEPER_COLLECTOR_HEALTH_PORT": str(health),
            "TOLLKEEPER_OTLP_GRPC_PORT": "0",
            "TOLLKEEPER_RECORD_SIGNING_KEY": _KEY,
            "TOLLKEEPER_STORE_URL": f"http://127.0.0.1:{free_port()}",
        }
        health_url = f"http://127.0.0.1:{health}/health"
        collector = Service("collector", "collector", Path(home), health_url, environment)
        try:
            await asyncio.to_thread(collector.start)
            await asyncio.to_thread(_send_batches, port)
            collector.end()

            async def said() -> Json:
                await asyncio.to_thread(collector.start)
                found = await asyncio.to_thread(_page, health_url)
                collector.end()
                return dict(found.get("missing", {}))

            return await _each(collector.data / "spool", said)
        finally:
            collector.end()


async def _each(directory: Path, said: Callable[[], Awaitable[Json]]) -> tuple[int, int, int, int]:
    """Do every damage to a copy; return entries before, overlapping, lost beyond these, and lost and not named."""
    kept = directory.with_name(f"{directory.name}-kept")
    shutil.copytree(directory, kept)
    entries = overlapping = beyond = unnamed = 0
    for damage in _DAMAGES:
        shutil.rmtree(directory)
        shutil.copytree(kept, directory)
        before = _read(directory)
        path = max(directory.glob("*.segment"), key=lambda found: found.stat().st_size)
        size = path.stat().st_size
        begin, end = 0, size
        if not damage.is_whole:
            begin = min(int(size * damage.place), size - 1) // _SECTOR_BYTES * _SECTOR_BYTES
            end = min(begin + _SECTOR_BYTES, size)
        with path.open("r+b") as file:
            file.seek(begin)
            file.write(bytes(end - begin) if damage.is_zeroed else random.Random(1).randbytes(end - begin))
        hit = {
            entry.payload
            for entry in before
            if entry.start.segment == int(path.stem) and entry.start.offset < end and entry.end.offset > begin
        }
        named = int((await said()).get("entries", 0))
        left = {entry.payload for entry in _read(directory)}
        lost = [entry.payload for entry in before if entry.payload not in left]
        entries += len(before)
        overlapping += len(hit)
        beyond += sum(payload not in hit for payload in lost)
        unnamed += abs(len(lost) - named)
    return entries, overlapping, beyond, unnamed


def _read(directory: Path) -> list[Entry]:
    log = SegmentLog(directory, max_bytes=_ALL_BYTES)
    try:
        return log.read(log.cursor, max_entries=1_000_000, max_bytes=_ALL_BYTES)
    finally:
        log.close()


def _send_batches(port: int) -> None:
    event = EVENT_NAMES[RequestRecord]
    for _ in range(_BATCHES):
        ids = [uuid7(time.time_ns()) for _ in range(_RECORDS)]
        records = [
            RequestRecord(request_id=one.bytes, started_at_ns=time.time_ns(), duration_ns=1_000_000) for one in ids
        ]
        packed = [(event, record.started_at_ns, encode_record(record)) for record in records]
        body = build_export_request(str(ids[0]), "tollkeeper-gateway", packed, _KEY.encode())
        url, head = f"http://127.0.0.1:{port}{LOGS_PATH}", {"content-type": "application/x-protobuf"}
        with urllib.request.urlopen(urllib.request.Request(url, body, head), timeout=20) as reply:
            assert reply.status == 200, reply.status


def _page(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as reply:
        return json.loads(reply.read())


async def _answer(body: Json, write: Write) -> None:
    message = {"role": "assistant", "content": "Hello"}
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    await write(
        whole({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage})
    )


def _request() -> bytes:
    data = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}]}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key_of(0)}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


_REQUEST: Final = _request()


def _configuration(url: str) -> Json:
    return {
        "keys": [{"key": key_of(0), "tenant": "damage", "id": "key_0"}],
        "pools": [{"name": "m", "policy": "round_robin", "targets": [target("u", url)]}],
        "models": [{"name": "m", "pool": "m"}],
    }
