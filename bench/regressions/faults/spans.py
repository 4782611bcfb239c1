"""A collector that hangs: is every span stored once, and does one trace lead from the caller's span to the decode?

`tollkeeper up` runs with tracing on. Its collector is stopped with SIGSTOP for longer than a sending waits, while its
engine host answers traced chats, and goes on after that; then the stored spans are counted.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import httpx

from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from bench.regressions.faults.drain import TAKEN, UP_PORTS, free_ports, wait_for
from bench.report import Report

_BEFORE: Final = 5
_WHILE: Final = 20
_STOPPED_SECONDS: Final = 8.0  # a sending waits for 5
_SETTLE_SECONDS: Final = 30.0
_TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
_CALLER: Final = "00f067aa0ba902b7"
_SPANS: Final = ("chat tollkeeper-5m", "gateway.attempt", "engine.prefill", "engine.decode")


def measure(report: Report) -> None:
    """Stop a collector while requests are traced, and count the spans of the trace in the store."""
    with tempfile.TemporaryDirectory(prefix="tollkeeper-spans-") as home:
        rows = _drill(Path(home))
    asked = _BEFORE + _WHILE
    lost = sum(asked - len({row[1] for row in rows if row[0] == name}) for name in _SPANS)
    doubled = len(rows) - len({row[1] for row in rows})
    known = {row[1] for row in rows} | {_CALLER}
    report.add("spans_lost", lost, "spans", must=0, better="lower", n=asked * len(_SPANS))
    report.add("spans_doubled", doubled, "spans", must=0, better="lower", n=len(rows))
    orphans = sum(row[2] not in known for row in rows) + (0 if rows else asked)
    report.add("spans_without_parent", orphans, "spans", must=0, better="lower", n=len(rows))


def _drill(home: Path) -> list[list[str]]:
    """Return name, id and parent of every stored span of the trace."""
    data, log, base = home / "data", home / "up.log", free_ports(UP_PORTS)
    command = [sys.executable, "-m", "tollkeeper", "up", "--data", str(data), "--port-base", str(base)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
    environment["TOLLKEEPER_TRACING"] = "true"
    with log.open("wb") as file:
        process = subprocess.Popen([*command, "--no-dashboard"], env=environment, stdout=file, stderr=file)
    collector = 0
    try:
        wait_for(log, "stops everything", process)
        wait_for(log, TAKEN, process)
        key = (data / "secrets" / "demo_key").read_text().strip()
        _ask(base, key, _BEFORE)
        collector = int((data / "run" / "collector.pid").read_text())
        os.kill(collector, signal.SIGSTOP)
        _ask(base, key, _WHILE)
        time.sleep(_STOPPED_SECONDS)
        os.kill(collector, signal.SIGCONT)
        collector = 0
        return _stored(data, base)
    finally:
        if collector:
            os.kill(collector, signal.SIGCONT)
        if process.poll() is None:
            process.kill()  # it takes its children with it
            process.wait()


def _ask(base: int, key: str, count: int) -> None:
    headers = {"Authorization": f"Bearer {key}", "traceparent": f"00-{_TRACE}-{_CALLER}-01"}
    with httpx.Client(headers=headers, timeout=30.0, trust_env=False) as client:
        for number in range(count):
            messages = [{"role": "user", "content": f"Hello {number}"}]
            chat = {"model": "tollkeeper-5m", "max_tokens": 8, "messages": messages}
            client.post(f"http://127.0.0.1:{base}/v1/chat/completions", json=chat).raise_for_status()


def _stored(data: Path, base: int) -> list[list[str]]:
    """Return the spans of the trace once all are stored, or once the time for that is over."""
    address = StoreAddress.resolve(
        f"http://127.0.0.1:{base + 7}", "tollkeeper", "reader", SecretFiles(data / "secrets")
    )
    query = f"SELECT SpanName, SpanId, ParentSpanId FROM tollkeeper.otel_traces WHERE TraceId = '{_TRACE}' FORMAT TSV"
    deadline, rows = time.monotonic() + _SETTLE_SECONDS, list[list[str]]()
    while len(rows) < (_BEFORE + _WHILE) * len(_SPANS) and time.monotonic() < deadline:
        time.sleep(1.0)
        reply = httpx.post(address.url, params={"query": query}, auth=(address.user, address.password), trust_env=False)
        rows = [line.split("\t") for line in reply.raise_for_status().text.splitlines()]
    time.sleep(3.0)  # for what is sent twice to be stored twice
    reply = httpx.post(address.url, params={"query": query}, auth=(address.user, address.password), trust_env=False)
    return [line.split("\t") for line in reply.raise_for_status().text.splitlines()]
