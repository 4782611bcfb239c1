"""How fast records become durable and queryable, on one core for the collector and the other for the store.

The load shares the store's core. Every record has 200 gaps; batches are those of a gateway's shipper.
"""

import http.client
import statistics
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Final

from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from backends.telemetry.otlp import LOGS_PATH
from bench.ingest import (
    BATCH_RECORDS,
    CollectorRig,
    Payload,
    Sender,
    marked_payload,
    post,
    record_payloads,
    seconds_until,
    span_payloads,
)
from bench.load.machine import Cores, spent_by
from bench.report import Report, run_bench
from bench.store_process import StoreProcess
from collector.processors.logs import LogsProcessor
from collector.spool import SpooledBatch
from contracts.recording.names import REQUESTS

MUST_ACK: Final = 30_000
STRETCH_ACK: Final = 80_000
MUST_QUERYABLE: Final = 15_000
STRETCH_QUERYABLE: Final = 30_000
MUST_SHARE: Final = 0.3
STRETCH_SHARE: Final = 0.5
MUST_SPANS: Final = 8_000
STRETCH_SPANS: Final = 20_000
MUST_VISIBLE_SECONDS: Final = 2.0
STRETCH_VISIBLE_SECONDS: Final = 1.0
MUST_MIB: Final = 900
STRETCH_MIB: Final = 600
TENANTS: Final = (10, 100, 1_000, 10_000)

_RAW_ROWS: Final = 10_000
_VISIBLE_RATE: Final = 2_000.0  # records/s beside the batches that are looked for
_PATIENCE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.5
_TICK: Final = 0.01  # of a process's CPU time


class Watch:
    """Looks at two processes now and then, and keeps the most memory that they held together."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.most_mib = 0.0

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self.most_mib = max(self.most_mib, sum(spent_by(pid).rss_mib for pid in self._pids))


def measure(report: Report) -> None:
    """Measure records to their acknowledgement and to the store, foreign spans, visibility, memory, and by tenants."""
    cores = Cores.choose()
    seconds = 8.0 if report.quick else 60.0
    with StoreProcess(core=cores.load) as store, CollectorRig(store, cores) as rig:
        bench = Bench(store, rig, store.client("reader"), cores)
        _measure_acknowledged(report, rig, cores, 3.0 if report.quick else 10.0)
        with Watch(rig.pid, store.pid) as watch:
            queryable = _measure_queryable(report, bench, seconds)
            _measure_raw(report, store, queryable, 5.0 if report.quick else 15.0)
            _measure_spans(report, bench, seconds)
            _measure_visible(report, bench, 15 if report.quick else 200)
        report.add("memory", watch.most_mib, "MiB, both", must=MUST_MIB, stretch=STRETCH_MIB, better="lower")
        for tenants in TENANTS:
            found = bench.sustained(record_payloads(tenants, time.time_ns()), "requests", seconds / 2)
            report.add(f"queryable_{tenants}_tenants", found.per_second, "records/s", n=found.rows)
            report.add(f"{tenants}_tenants_per_store_second", found.per_store_second, "records/CPU-s", n=found.rows)
        bench.client.close()


def _measure_acknowledged(report: Report, rig: CollectorRig, cores: Cores, seconds: float) -> None:
    """While the exporter works on the same core, as it does in life."""
    sender = Sender(rig.port, record_payloads(10, time.time_ns()), cores.load)
    before = spent_by(rig.pid)
    took = sender.run(seconds)
    cpu = spent_by(rig.pid).cpu_seconds - before.cpu_seconds
    rate = sender.acknowledged / took
    report.add("acknowledged", rate, "records/s", must=MUST_ACK, stretch=STRETCH_ACK, n=sender.acknowledged)
    report.add("acknowledged_per_cpu_second", sender.acknowledged / max(cpu, 1e-9), "records/CPU-s, exporting beside")
    rig.wait_until_exported(_PATIENCE_SECONDS)


@dataclass(frozen=True, slots=True)
class Sustained:
    """What became queryable while it was sent, and what all that was sent has cost by the time it was stored."""

    rows: int
    per_second: float
    per_collector_second: float
    per_store_second: float


@dataclass(frozen=True, slots=True)
class Bench:
    """The processes under test, and a client of the store."""

    store: StoreProcess
    rig: CollectorRig
    client: StoreClient
    cores: Cores

    def sustained(self, payloads: list[Payload], table: str, seconds: float) -> Sustained:
        """Send as fast as the store keeps up, and count the rows that can be asked for when the time is over."""
        self.rig.wait_until_exported(_PATIENCE_SECONDS)
        before = _count(self.client, table)
        collector, store = spent_by(self.rig.pid), spent_by(self.store.pid)
        sender = Sender(self.rig.port, payloads, self.cores.load, waiting_bytes=self.rig.waiting_bytes)
        took = sender.run(seconds)
        rows = _count(self.client, table) - before
        self.rig.wait_until_exported(_PATIENCE_SECONDS)
        collector_used = spent_by(self.rig.pid).cpu_seconds - collector.cpu_seconds
        store_used = spent_by(self.store.pid).cpu_seconds - store.cpu_seconds
        sent = sender.acknowledged
        return Sustained(rows, rows / took, sent / max(collector_used, _TICK), sent / max(store_used, _TICK))


def _measure_queryable(report: Report, bench: Bench, seconds: float) -> Sustained:
    found = bench.sustained(record_payloads(10, time.time_ns()), "requests", seconds)
    unit = f"records/s over {seconds:g} s"
    report.add("queryable", found.per_second, unit, must=MUST_QUERYABLE, stretch=STRETCH_QUERYABLE, n=found.rows)
    report.add("queryable_per_collector_second", found.per_collector_second, "records/CPU-s", n=found.rows)
    report.add("queryable_per_store_second", found.per_store_second, "records/CPU-s", n=found.rows)
    return found


def _measure_raw(report: Report, store: StoreProcess, queryable: Sustained, seconds: float) -> None:
    """Insert Arrow tables made beforehand into the same table, with the views behind it: what no collector can pass."""
    processor = LogsProcessor()
    payloads = record_payloads(10, time.time_ns())
    rows: list[object] = []
    for payload in payloads:
        batch = SpooledBatch("raw", "logs", time.time_ns(), payload.body)
        rows += processor.process(batch).tables["requests"].rows
    table = arrow_batch(REQUESTS, rows[:_RAW_ROWS])
    writer = store.client("writer")
    inserted, used = 0, spent_by(store.pid).cpu_seconds
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        writer.insert_arrow("requests", table, deduplication_token=uuid.uuid4().hex)
        inserted += table.num_rows
    raw = inserted / (time.monotonic() - began)
    used = spent_by(store.pid).cpu_seconds - used
    writer.close()
    report.add("raw_arrow_insert", raw, f"records/s, {table.num_rows} at a time", n=inserted)
    raw_per_store_second = inserted / max(used, _TICK)
    report.add("raw_per_store_second", raw_per_store_second, "records/CPU-s", n=inserted)
    share_by_cpu = queryable.per_store_second / raw_per_store_second
    report.add("share_of_raw_by_store_cpu", share_by_cpu, "of raw Arrow insert", n=inserted)
    share = queryable.per_second / raw
    report.add("share_of_raw", share, "of raw Arrow insert", must=MUST_SHARE, stretch=STRETCH_SHARE, n=inserted)


def _measure_spans(report: Report, bench: Bench, seconds: float) -> None:
    found = bench.sustained(span_payloads(time.time_ns()), "traces", seconds)
    report.add("spans", found.per_second, "spans/s", must=MUST_SPANS, stretch=STRETCH_SPANS, n=found.rows)
    report.add("spans_per_collector_second", found.per_collector_second, "spans/CPU-s", n=found.rows)
    report.add("spans_per_store_second", found.per_store_second, "spans/CPU-s", n=found.rows)


def _measure_visible(report: Report, bench: Bench, batches: int) -> None:
    """Beside a steady load, from a batch's last byte to the first query that finds it."""
    load = Sender(bench.rig.port, record_payloads(10, time.time_ns()), bench.cores.load, _VISIBLE_RATE)
    beside = threading.Thread(target=load.run, args=(batches * 0.5,), daemon=True)
    beside.start()
    took: list[float] = []
    for number in range(batches):
        run = f"visible-{uuid.uuid4().hex}-{number}"
        body = marked_payload(run, time.time_ns())
        connection = http.client.HTTPConnection("127.0.0.1", bench.rig.port, timeout=60)
        status = post(connection, LOGS_PATH, body)
        connection.close()
        if status != 200:
            continue
        found = seconds_until(lambda: _marked(bench.client, run) == BATCH_RECORDS, _PATIENCE_SECONDS)  # noqa: B023
        took.append(_PATIENCE_SECONDS if found is None else found)
    beside.join()
    p99 = statistics.quantiles(took, n=100, method="inclusive")[98]
    report.add("visible_p50", statistics.median(took), "s", better="lower", n=len(took))
    report.add(
        "visible_p99",
        p99,
        "s",
        must=MUST_VISIBLE_SECONDS,
        stretch=STRETCH_VISIBLE_SECONDS,
        better="lower",
        n=len(took),
    )


def _marked(client: StoreClient, run: str) -> int:
    sql = "SELECT count() AS n FROM requests WHERE run_id = {run:String} AND started_at > now() - INTERVAL 1 HOUR"
    return int(str(client.query(sql, {"run": run})[0]["n"]))


def _count(client: StoreClient, table: str) -> int:
    # The table's name is one of this module's own.
    return int(str(client.query(f"SELECT count() AS n FROM {table}")[0]["n"]))


if __name__ == "__main__":
    sys.exit(run_bench("collector", measure))
