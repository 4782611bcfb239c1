"""Is every GPU nanosecond of vLLM's steps on a record, when half of the clients leave? Gateway and host on a real GPU.

Three tenants ask whole and cancelled requests side by side. The gateway's journal then has all of it: the records of
requests, of steps and of the KV cache. Needs a GPU and vLLM: `python -m bench.gpu_cancelled --json --shape 8b`.
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.engine_gpu import _missing
from bench.gpu_gateway import GatewayProcess
from bench.gpu_host import HostProcess, connect
from bench.gpu_models import words, write_model
from bench.report import Report, run_bench
from contracts.recording.records import (
    AttemptRecord,
    GpuShare,
    KvRecord,
    Record,
    RequestRecord,
    StepRecord,
    decode_record,
)
from gateway.records.journal import Journal, unpack_entry

TENANTS: Final = {f"tk-{letter * 43}": letter for letter in "ABC"}
_ROWS: Final = (
    ("gpu_cancelled_missing_ns", "ns", 0.0),
    ("gpu_cancelled_requests_off", "requests", 0.0),
    ("gpu_cancelled_steps_lost", "steps", 0.0),
    ("gpu_cancelled_requests", "requests", None),
    ("gpu_cancelled_whole_requests", "requests", None),
    ("gpu_cancelled_failed_requests", "requests", 0.0),
    ("gpu_cancelled_busy_seconds", "s", None),
    ("gpu_cancelled_kv_share", "%", None),
    ("gpu_cancelled_removed_blocks", "blocks", None),
    ("gpu_cancelled_records_per_removed_block", "records", 0.1),
)
_ARGUMENTS: Final = {
    "max_model_len": 16_384,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 8_192,
    "gpu_memory_utilization": 0.6,
    "load_format": "dummy",
    "kv_cache_memory_bytes": 8 << 30,  # small enough that prompts are evicted all the time
}
_LOAD_SECONDS: Final = 300.0
_SETTLE_SECONDS: Final = 8.0
_PORT: Final = 18_090


@dataclass(frozen=True, slots=True)
class Visit:
    """One request: when it starts, what it asks, and when its client leaves (bytes of the answer, or seconds)."""

    start_seconds: float
    key: str
    prompt: str
    output_tokens: int
    leaves_after_bytes: int | None = None
    leaves_after_seconds: float | None = None
    parts: int = 1  # more: a completion of as many prompts

    @property
    def is_whole(self) -> bool:
        """Return whether the client waits for the end of its answer."""
        return self.leaves_after_bytes is None and self.leaves_after_seconds is None


def visits(count: int, seconds: float, seed: int) -> list[Visit]:
    """Make the load: every second client leaves, some before the first token, some in the middle of a long prefill."""
    source = random.Random(seed)
    text = list(words().values())
    found = []
    for number in range(count):
        length = source.choices((64, 400, 1500, 6000), (4, 4, 3, 1))[0]
        leaves: dict[str, Any] = {}
        if number % 2:
            how = source.random()
            if how < 0.25:
                leaves = {"leaves_after_seconds": source.uniform(0, 0.05)}
            elif how < 0.6:
                leaves = {"leaves_after_seconds": source.uniform(0.05, 1.5)}
            else:
                leaves = {"leaves_after_bytes": source.randrange(600, 20_000)}
        prompt = "".join(source.choices(text, k=length))
        key = source.choice(list(TENANTS))
        found.append(Visit(source.uniform(0, seconds), key, prompt, source.randrange(32, 257), **leaves))
    return sorted(found, key=lambda one: one.start_seconds)


async def visit(one: Visit, model: str, port: int, began: float) -> None:
    """Ask, and leave as planned."""
    await asyncio.sleep(max(0.0, began + one.start_seconds - time.monotonic()))
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": one.prompt}]}
    if one.parts > 1:
        asked = {"prompt": [f"{place} {one.prompt}" for place in range(one.parts)]}
    body = json.dumps(
        {
            "model": model, **asked, "max_tokens": one.output_tokens,
            "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True},
        }
    ).encode()  # fmt: skip
    path = "completions" if one.parts > 1 else "chat/completions"
    head = (
        f"POST /v1/{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {one.key}\r\n"
        f"content-type: application/json\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head + body)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(one.leaves_after_seconds):
                read, most = 0, one.leaves_after_bytes
                while (most is None or read < most) and (data := await reader.read(65_536)):
                    read += len(data)
    finally:
        writer.close()


def journalled(folder: Path) -> list[Record]:
    """Read all records of a stopped gateway's journal."""
    journal = Journal(folder, max_bytes=1 << 31)
    try:
        found, cursor = [], journal.cursor
        for entry in journal.read(cursor, max_entries=10_000_000, max_bytes=1 << 31):
            found.append(decode_record(unpack_entry(entry)[1]))
        return found
    finally:
        journal.close()


def share_ns(share: GpuShare | None) -> int:
    """Sum a record's GPU time over its phases."""
    return 0 if share is None else share.prefill_ns + share.decode_ns + share.recompute_ns + share.wasted_ns


@dataclass(frozen=True, slots=True)
class Books:
    """What a journal's records say of GPU time, and what its steps were split into, by request; and KV records."""

    booked_ns: Counter[bytes]
    computed_ns: Counter[bytes]
    computed_tokens: Counter[bytes]
    on_a_record: frozenset[bytes]
    outcomes: Counter[str]
    steps: int
    steps_lost: int
    busy_ns: int
    records: int
    kv_records: int
    removals: int
    removed_blocks: int

    @property
    def differing(self) -> list[bytes]:
        """Return the requests whose records do not say what their steps do."""
        everybody = self.booked_ns.keys() | self.computed_ns.keys()
        return [one for one in everybody if self.booked_ns[one] != self.computed_ns[one]]

    @property
    def missing_ns(self) -> int:
        """Sum how far each request's records are from its steps."""
        return sum(abs(self.computed_ns[one] - self.booked_ns[one]) for one in self.differing)

    @property
    def tokens_without_a_line(self) -> int:
        """Return the number of tokens that engines computed for requests that no record names."""
        return sum(count for one, count in self.computed_tokens.items() if one not in self.on_a_record)

    @property
    def removals_per_block(self) -> float:
        """Return how many records tell of one evicted block."""
        return self.removals / max(self.removed_blocks, 1)


def books_of(records: list[Record]) -> Books:
    """Add a journal's records up."""
    booked: Counter[bytes] = Counter()
    computed: Counter[bytes] = Counter()
    tokens: Counter[bytes] = Counter()
    outcomes: Counter[str] = Counter()
    named: set[bytes] = set()
    numbers: dict[str, list[int]] = {}
    busy_ns = kv = removals = removed = 0
    for record in records:
        if isinstance(record, RequestRecord):
            outcomes[record.outcome] += 1
            named.add(record.request_id)
            booked[record.request_id] += share_ns(record.gpu) if record.attempts <= 1 else 0
        elif isinstance(record, AttemptRecord):
            named.add(record.request_id)
            booked[record.request_id] += share_ns(record.gpu)
        elif isinstance(record, StepRecord):
            numbers.setdefault(record.engine, []).append(record.sequence)
            busy_ns += record.busy_ns if record.kind == "step" else 0
            for request_id, part, count in zip(record.request_ids, record.gpu_ns, record.scheduled, strict=True):
                computed[request_id] += part
                tokens[request_id] += count
        elif isinstance(record, KvRecord):
            kv += 1
            removals += record.event == "removed"
            removed += len(record.block_hashes) if record.event == "removed" else 0
    lost = sum(max(found) - min(found) + 1 - len(set(found)) for found in numbers.values())
    return Books(
        booked, computed, tokens, frozenset(named), outcomes, sum(map(len, numbers.values())), lost, busy_ns,
        len(records), kv, removals, removed,
    )  # fmt: skip


def add_rows(report: Report, books: Books) -> None:
    """Compare what requests were charged with what steps were split into, and count the KV records."""
    for one in books.differing[:20]:
        print(f"off by {books.computed_ns[one] - books.booked_ns[one]} ns: {one.hex()}", file=sys.stderr)
    values = {
        "gpu_cancelled_missing_ns": books.missing_ns,
        "gpu_cancelled_requests_off": len(books.differing),
        "gpu_cancelled_steps_lost": books.steps_lost,
        "gpu_cancelled_requests": books.outcomes["cancelled"],
        "gpu_cancelled_whole_requests": books.outcomes["ok"],
        "gpu_cancelled_failed_requests": books.outcomes["error"] + books.outcomes["rejected"],
        "gpu_cancelled_busy_seconds": books.busy_ns / 1e9,
        "gpu_cancelled_kv_share": 100 * books.kv_records / max(books.records, 1),
        "gpu_cancelled_removed_blocks": books.removed_blocks,
        "gpu_cancelled_records_per_removed_block": books.removals_per_block,
    }
    for name, unit, must in _ROWS:
        report.add(name, values[name], unit, must=must, better="lower", n=books.steps)


async def serve(shape: str, folder: Path, load: list[Visit]) -> Path:
    """Start host and gateway, run the load, stop both. Return the gateway's journal."""
    model = write_model(folder, shape)
    arguments = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in _ARGUMENTS.items())
    host = HostProcess(model, folder / "host", arguments)
    gateway: GatewayProcess | None = None
    try:
        line = await connect(host)
        await line.ready(model.name, host, _LOAD_SECONDS)
        line.close()  # step records go to the longest connected
        gateway = GatewayProcess(model.name, host.socket, folder / "gateway", _PORT, TENANTS)
        await gateway.ready()
        began = time.monotonic() + 1
        await asyncio.gather(*(visit(one, model.name, _PORT, began) for one in load))
        print(f"load done after {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        await asyncio.sleep(_SETTLE_SECONDS)
    finally:
        if gateway is not None:
            gateway.stop()
        host.stop()
        for log in (folder / "host" / "host.log", folder / "gateway" / "gateway.log"):
            if log.exists():
                print(f"{log.name}: {log.read_text(errors='replace')[-1500:]}", file=sys.stderr)
    return folder / "gateway" / "journal"


def measure(report: Report) -> None:
    """Cancel half of the requests of three tenants and compare records with steps, to the nanosecond."""
    reason = _missing()
    if reason:
        for name, unit, must in _ROWS:
            report.add_absent(name, unit, reason, must=must)
        return
    count = 120 if report.quick else report.options.requests
    with tempfile.TemporaryDirectory(prefix="g") as home:  # short: sockets lie in it
        load = visits(count, report.options.seconds, report.options.seed)
        journal = uvloop.run(serve(report.options.shape, Path(home), load))
        add_rows(report, books_of(journalled(journal)))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", choices=("1b", "8b"), default="8b", help="model shape, random weights (default 8b)")
    parser.add_argument("--requests", type=int, default=700, help="requests, half of them cancelled (default 700)")
    parser.add_argument("--seconds", type=float, default=70.0, help="seconds over which they arrive (default 70)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the load (default 1)")


if __name__ == "__main__":
    sys.exit(run_bench("gpu_cancelled", measure, add_options=_add_options))
