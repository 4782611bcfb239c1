"""Does the sidecar of somebody else's `vllm serve` account for every request and every GPU nanosecond? On a real GPU.

Three processes that share nothing but a socket and HTTP: `vllm serve` with the metered worker, `python -m
gateway.observability.sidecar`, and a gateway whose target is vLLM's address. The load is that of `bench.gpu_cancelled`:
half of the clients leave. Compared are the journals of the gateway and of the sidecar. Needs a GPU and vLLM.
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop
import yaml

from bench.engine_gpu import _missing
from bench.gpu_cancelled import TENANTS, journalled, visit, visits
from bench.gpu_host import ROOT
from bench.gpu_models import write_model
from bench.report import Report, run_bench
from contracts.recording.records import AttemptRecord, Record, RequestRecord, StepRecord

_ROWS: Final = (
    ("gpu_sidecar_steps_lost", "steps", 0.0),
    ("gpu_sidecar_unsplit_ns", "ns", 0.0),
    ("gpu_sidecar_whole_requests_without_steps", "requests", 0.0),
    ("gpu_sidecar_whole_requests_off_by_tokens", "requests", 0.0),
    ("gpu_sidecar_nameless_share", "% of busy time", 0.0),
    ("gpu_sidecar_failed_requests", "requests", 0.0),
    ("gpu_sidecar_whole_requests", "requests", None),
    ("gpu_sidecar_cancelled_requests", "requests", None),
    ("gpu_sidecar_busy_seconds", "s", None),
    ("gpu_sidecar_busy_share", "% of serving", None),
)
_LOAD_SECONDS: Final = 400.0
_SETTLE_SECONDS: Final = 8.0
_GATEWAY_PORT: Final = 18_090
_VLLM_PORT: Final = 18_091
_NOBODY: Final = bytes(16)


class Process:
    """A process of the set-up, its output in a file."""

    def __init__(self, name: str, folder: Path, command: Sequence[str], settings: Mapping[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
            **settings,
        }
        self._process = subprocess.Popen(
            [sys.executable, *command], env=environment, cwd=ROOT, stdout=self.log.open("wb"), stderr=subprocess.STDOUT
        )

    async def until_answered(self, url: str, seconds: float) -> None:
        """Wait until an address answers 200. Raises RuntimeError if it does not, or the process ends."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            if await asyncio.to_thread(_is_answered, url):
                return
            await asyncio.sleep(0.3)
        raise RuntimeError(f"{self.name} does not answer: {self.tail()}")

    def stop(self, seconds: float = 30.0) -> int:
        """End the process, by force if it does not end, and return its exit status."""
        self._process.terminate()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def tail(self) -> str:
        """Return the end of what it wrote."""
        return self.log.read_text(errors="replace")[-3000:]


def _is_answered(url: str) -> bool:
    with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=2) as reply:
        return bool(reply.status == 200)
    return False


@dataclass(frozen=True, slots=True)
class Books:
    """What the two journals say. `tokens` and `gpu_ns` are the sidecar's, by request id."""

    outcomes: Counter[str]
    whole: Mapping[bytes, int]  # tokens that the gateway billed for requests answered to their end
    tokens: Counter[bytes]
    steps: int
    steps_lost: int
    busy_ns: int
    split_ns: int
    nameless_ns: int
    span_ns: int

    @property
    def without_steps(self) -> int:
        """Count the whole requests that no step names."""
        return sum(one not in self.tokens for one in self.whole)

    @property
    def off_by_tokens(self) -> int:
        """Count the whole requests of which steps computed other than all tokens but the last, which none computes.

        Tokens found in a prefix cache would be computed by nobody: vLLM runs without one here.
        """
        return sum(self.tokens[one] != billed - 1 for one, billed in self.whole.items())


def books_of(gateway: Sequence[Record], sidecar: Sequence[Record]) -> Books:
    """Add both journals up. Steps before the first request (loading, warm-up) do not count."""
    outcomes: Counter[str] = Counter()
    whole: dict[bytes, int] = {}
    known: set[bytes] = set()
    for record in gateway:
        if isinstance(record, RequestRecord):
            outcomes[record.outcome] += 1
            known.add(record.request_id)
            if record.outcome == "ok":
                whole[record.request_id] = (record.usage.input_text or 0) + (record.usage.output_text or 0)
        elif isinstance(record, AttemptRecord):
            known.add(record.request_id)
    tokens: Counter[bytes] = Counter()
    numbers: dict[str, list[int]] = {}
    busy_ns = split_ns = nameless_ns = 0
    begins: list[int] = []
    for step in sidecar:
        if not isinstance(step, StepRecord):
            continue
        numbers.setdefault(step.engine, []).append(step.sequence)
        if step.kind != "step" or not step.request_ids:
            continue
        begins.append(step.started_at_ns)
        busy_ns += step.busy_ns
        split_ns += sum(step.gpu_ns)
        for request_id, part, count in zip(step.request_ids, step.gpu_ns, step.scheduled, strict=True):
            tokens[request_id] += count
            nameless_ns += part if request_id == _NOBODY or request_id not in known else 0
    lost = sum(max(found) - min(found) + 1 - len(set(found)) for found in numbers.values())
    span_ns = max(begins, default=0) - min(begins, default=0)
    return Books(
        outcomes, whole, tokens, sum(map(len, numbers.values())), lost, busy_ns, split_ns, nameless_ns, span_ns
    )


async def serve(report: Report, folder: Path) -> None:
    """Start all three, run the load, stop them in the order that loses nothing."""
    options = report.options
    model = write_model(folder, options.shape)
    meter = folder / "m.sock"
    configuration = folder / "gateway.yaml"
    target = {"name": "vllm-0", "kind": "openai_http", "url": f"http://127.0.0.1:{_VLLM_PORT}/v1"}
    configuration.write_text(
        yaml.safe_dump(
            {
                "keys": [{"key": key, "tenant": tenant} for key, tenant in TENANTS.items()],
                "pools": [{"name": "pool", "targets": [target]}],
                "models": [{"name": model.name, "pool": "pool"}],
            }
        )
    )
    arguments = (
        f"--model {model} --served-model-name {model.name} --host 127.0.0.1 --port {_VLLM_PORT} --load-format dummy "
        "--max-model-len 16384 --max-num-seqs 256 --gpu-memory-utilization 0.6 --no-enable-prefix-caching "
        "--worker-cls backends.engine.vllm_engine.metering.worker.MeteredWorker"
    ).split()
    started: list[Process] = []

    def start(name: str, command: Sequence[str], **settings: object) -> Process:
        given = {f"TOLLKEEPER_{key.upper()}": str(value) for key, value in settings.items()}
        started.append(Process(name, folder, command, given))
        return started[-1]

    try:
        start(
            "sidecar",
            ["-m", "gateway.observability.sidecar"],
            data=folder / "sidecar",
            meter_socket=meter,
            meter_model=model.name,
            meter_replica="vllm-0",
            collector_url="http://127.0.0.1:9",  # nobody: all stays in the journal
        )
        vllm = start("vllm", ["-m", "vllm.entrypoints.openai.api_server", *arguments], meter_socket=meter)
        await vllm.until_answered(f"http://127.0.0.1:{_VLLM_PORT}/health", _LOAD_SECONDS)
        gateway = start(
            "gateway",
            ["-m", "gateway"],
            data=folder / "gateway",
            gateway_config=configuration,
            gateway_port=_GATEWAY_PORT,
            journal_max_bytes=1 << 30,
        )
        await gateway.until_answered(f"http://127.0.0.1:{_GATEWAY_PORT}/ready", 60)
        load = visits(120 if report.quick else options.requests, options.seconds, options.seed)
        began = time.monotonic() + 1
        await asyncio.gather(*(visit(one, model.name, _GATEWAY_PORT, began) for one in load))
        print(f"load done after {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        await asyncio.sleep(_SETTLE_SECONDS)
    finally:
        for process in reversed(started):  # the gateway first, the sidecar last
            status = process.stop()
            print(f"{process.name} ended with {status}: {process.tail()}", file=sys.stderr, flush=True)


def measure(report: Report) -> None:
    """Run the load and compare the books of the sidecar with those of the gateway."""
    reason = _missing()
    if reason:
        for name, unit, must in _ROWS:
            report.add_absent(name, unit, reason, must=must)
        return
    with tempfile.TemporaryDirectory(prefix="g") as home:  # short: sockets lie in it
        folder = Path(home)
        uvloop.run(serve(report, folder))
        books = books_of(journalled(folder / "gateway" / "journal"), journalled(folder / "sidecar" / "journal"))
    values = {
        "gpu_sidecar_steps_lost": books.steps_lost,
        "gpu_sidecar_unsplit_ns": abs(books.busy_ns - books.split_ns),
        "gpu_sidecar_whole_requests_without_steps": books.without_steps,
        "gpu_sidecar_whole_requests_off_by_tokens": books.off_by_tokens,
        "gpu_sidecar_nameless_share": 100 * books.nameless_ns / max(books.busy_ns, 1),
        "gpu_sidecar_failed_requests": books.outcomes["error"] + books.outcomes["rejected"],
        "gpu_sidecar_whole_requests": books.outcomes["ok"],
        "gpu_sidecar_cancelled_requests": books.outcomes["cancelled"],
        "gpu_sidecar_busy_seconds": books.busy_ns / 1e9,
        "gpu_sidecar_busy_share": 100 * books.busy_ns / max(books.span_ns, 1),
    }
    for name, unit, must in _ROWS:
        report.add(name, values[name], unit, must=must, better="lower", n=books.steps)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", choices=("1b", "8b"), default="8b", help="model shape, random weights (default 8b)")
    parser.add_argument("--requests", type=int, default=700, help="requests, half of them cancelled (default 700)")
    parser.add_argument("--seconds", type=float, default=70.0, help="seconds over which they arrive (default 70)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the load (default 1)")


if __name__ == "__main__":
    sys.exit(run_bench("gpu_sidecar", measure, add_options=_add_options))
