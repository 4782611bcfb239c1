"""100,000 keys in one gateway: how long they load, what they weigh, and how soon a revocation is seen everywhere.

The control database is SQLite on this machine. The gateway is a process of its own, asked over HTTP; the stall is that
of an event loop in this process whose directory polls the same database.
"""

import asyncio
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from sqlalchemy import insert

from backends.control import keys, organisation, serving
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.serving import NewTarget
from backends.secrets.secret_files import SecretFiles
from bench.report import Report, run_bench
from contracts.access.keys import digest_of, hint_of, new_key
from contracts.control import ApiKey
from gateway.config.database_source import DatabaseSource
from gateway.config.directory import Directory
from gateway.request.clock import Clock
from migrations.database import migrate_database

KEYS: Final = 100_000
TENANTS: Final = 100
REVOCATIONS: Final = 20
MUST_RSS_MB: Final = 150
MUST_SEEN_MS: Final = 1000
MUST_STALL_MS: Final = 20
_POLICIES: Final = 20
_CHUNK: Final = 10_000
_PATIENCE_SECONDS: Final = 60.0
_BEAT_SECONDS: Final = 0.001


def secret_of(number: int) -> str:
    """Return the secret of the key of this number."""
    return new_key(sha256(b"bench %d" % number).digest())


def fill(database: ControlDatabase, pepper: bytes) -> None:
    """Put tenants and keys into a migrated database: one key in two has scopes, of 20 kinds."""
    author = Author("bench", datetime.now(UTC))
    with database.session() as session:
        serving.create_pool(session, author, "pool")
        serving.create_target(session, author, "pool", NewTarget("one", "scripted"))
        serving.create_model(session, author, "small", "pool")
        for number in range(TENANTS):
            organisation.create_tenant(session, author, f"tenant-{number}", f"Tenant {number}")
        for start in range(0, KEYS, _CHUNK):
            rows = [_row(number, pepper, author) for number in range(start, start + _CHUNK)]
            session.execute(insert(ApiKey), rows)


def _row(number: int, pepper: bytes, author: Author) -> dict[str, Any]:
    secret = secret_of(number)
    scopes = {"models": ["small"], "max_thinking_tokens": number % _POLICIES} if number % 2 else {}
    return {
        "id": key_id(number),
        "tenant_id": f"tenant-{number % TENANTS}",
        "team_id": f"team-{number % 7}",
        "project_id": "",
        "name": f"key {number}",
        "digest": digest_of(secret, pepper).hex(),
        "hint": hint_of(secret),
        "is_service_account": False,
        "scopes": scopes,
        "created_at": author.at,
    }


def key_id(number: int) -> str:
    """Return the id of the key of this number, as long as those that the control plane makes."""
    return f"key_{number:032x}"


def revoke(database: ControlDatabase, number: int) -> None:
    """Revoke the key of this number as the control plane does."""
    author = Author("bench", datetime.now(UTC))
    with database.session() as session:
        keys.revoke_key(session, author, f"tenant-{number % TENANTS}", key_id(number))


def measure(report: Report) -> None:
    """Measure 100,000 keys on SQLite: load, memory, 20 revocations as a client sees them, and the loop's stall."""
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory)
        url = f"sqlite:///{data / 'control.db'}"
        migrate_database(url, say=lambda line: None)
        pepper = SecretFiles(data / "secrets").get_or_create("key_pepper").encode()
        database = ControlDatabase(url)
        try:
            fill(database, pepper)
            rounds = 1 if report.quick else 3
            report.add("load", min(_load_seconds(url) for _ in range(rounds)), "s", better="lower", n=rounds)
            _measure_gateway(report, database, data)
            _measure_stall(report, database, url)
        finally:
            database.close()


def _load_seconds(url: str) -> float:
    source = DatabaseSource(url)
    begin = time.perf_counter()
    loaded = len(source.load().keys)
    elapsed = time.perf_counter() - begin
    assert loaded == KEYS, f"{loaded} of {KEYS} keys were loaded"
    return elapsed


def _measure_gateway(report: Report, database: ControlDatabase, data: Path) -> None:
    with _gateway(data) as (process, port):
        resident = [_resident_mb(process.pid)]
        seen_ms = []
        for number in range(REVOCATIONS):
            assert _status(port, number) == 200, "the key does not work before it is revoked"
            revoke(database, number)
            begin = time.perf_counter()
            while _status(port, number) != 401:
                assert time.perf_counter() - begin < _PATIENCE_SECONDS, "the revocation was never seen"
                time.sleep(0.002)
            seen_ms.append((time.perf_counter() - begin) * 1e3)
        resident.append(_resident_mb(process.pid))
    report.add("resident_after_start", resident[0], "MB", must=MUST_RSS_MB, better="lower")
    name = f"resident_after_{REVOCATIONS}_changes"
    report.add(name, resident[1], "MB", must=MUST_RSS_MB, better="lower")
    report.add("revocation_seen_p50", statistics.median(seen_ms), "ms", better="lower", n=REVOCATIONS)
    # Of 20 the 99th percentile is the worst.
    report.add("revocation_seen_p99", max(seen_ms), "ms", must=MUST_SEEN_MS, better="lower", n=REVOCATIONS)


@contextmanager
def _gateway(data: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ours = {
        "TOLLKEEPER_DATA": str(data),
        "TOLLKEEPER_GATEWAY_PORT": str(port),
        "TOLLKEEPER_INVALID_KEYS_PER_MINUTE": "1000000",
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
    with (data / "gateway.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway"], env={**environment, **ours}, stdout=log, stderr=log
        )
        try:
            begin = time.perf_counter()
            while not _answers(port):
                late = time.perf_counter() - begin > _PATIENCE_SECONDS
                assert process.poll() is None and not late, (data / "gateway.log").read_text()
                time.sleep(0.05)
            yield process, port
        finally:
            process.terminate()
            process.wait(_PATIENCE_SECONDS)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _status(port: int, number: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {secret_of(number)}"})
        reply = connection.getresponse()
        json.loads(reply.read())
        return reply.status
    finally:
        connection.close()


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _measure_stall(report: Report, database: ControlDatabase, url: str) -> None:
    calm, stalls = asyncio.run(_stalls(database, url))
    # Each change does the same work, so its own stall is in every one; what only the worst has is the machine's.
    report.add("loop_stall", statistics.median(stalls), "ms", must=MUST_STALL_MS, better="lower", n=len(stalls))
    report.add("loop_stall_worst", max(stalls), "ms", better="lower", n=len(stalls))
    report.add("loop_stall_without_changes", statistics.median(calm), "ms", better="lower", n=len(calm))


async def _stalls(database: ControlDatabase, url: str) -> tuple[Sequence[float], Sequence[float]]:
    source = DatabaseSource(url)
    directory = Directory(source, source.load(), Clock(), 60.0, lambda: None)
    calm, changing = [], []
    for number in range(REVOCATIONS):
        calm.append(await _longest_gap_ms(directory))
        revoke(database, REVOCATIONS + number)
        changing.append(await _longest_gap_ms(directory))
    assert len(directory.snapshot.keys) == KEYS - 2 * REVOCATIONS, "a change was not seen"
    return calm, changing


async def _longest_gap_ms(directory: Directory) -> float:
    refreshing = asyncio.create_task(directory.refresh())
    longest = 0.0
    while not refreshing.done():
        begin = time.perf_counter()
        await asyncio.sleep(_BEAT_SECONDS)
        longest = max(longest, time.perf_counter() - begin - _BEAT_SECONDS)
    await refreshing
    return longest * 1e3


if __name__ == "__main__":
    sys.exit(run_bench("identity", measure))
