"""The exporter against a store that can be told what to refuse; the real one is in test_store.py."""

import base64
import errno
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.segment_log.segments import SegmentLog
from backends.store.batch_claims import BatchClaims
from backends.store.columns import arrow_batch
from backends.store.store_locks import StoreLocks
from collector.counters import Counters
from collector.dead_letters import DeadLetters
from collector.exporters.backoff import Backoff
from collector.exporters.clickhouse import ClickHouseExporter
from collector.exporters.insert_plan import InsertPlan, PlanFile
from collector.exporters.inserts import insert_rows
from collector.exporters.planner import InsertPlanner
from collector.pipeline import Pipeline
from collector.processors.logs import LogsProcessor
from collector.rows import TableRows
from collector.spool import Spool, SpooledBatch
from contracts.errors import ConfigurationError, StoreRefused, StoreUnavailable, TollkeeperError
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord

Make = Callable[..., Any]


class RefusingStore:
    """Keeps rows once per (table, token), as ClickHouse does, and refuses what it is told to."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], pyarrow.Table] = {}
        self.poison: set[int] = set()  # duration_ns of rows it never takes
        self.failures: list[Exception] = []  # raised by the next inserts, one each
        self.calls = 0

    def insert_arrow(self, table: str, data: pyarrow.Table, *, deduplication_token: str) -> None:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        if self.poison & set(data["duration_ns"].to_pylist()):
            raise StoreRefused("poisonous")
        self.kept.setdefault((table, deduplication_token), data)

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        return []  # a store without ordered claims: every batch goes alone

    def ping(self) -> bool:
        return True

    def durations(self) -> list[int]:
        return sorted(n for data in self.kept.values() for n in data["duration_ns"].to_pylist())


class Parts:
    """An exporter and what it stands on."""

    def __init__(self, directory: Path) -> None:
        self.counters = Counters()
        self.store = RefusingStore()
        self.spool = Spool(SegmentLog(directory, max_bytes=1 << 24))
        self.dead_letters = DeadLetters(directory, max_bytes=1 << 20, counters=self.counters, clock_ns=lambda: 7)
        self.pipeline = Pipeline({"logs": LogsProcessor()}, self.spool, self.counters)
        self.plan_file = PlanFile(directory / "insert.plan")
        planner = InsertPlanner(self.spool, self.plan_file, BatchClaims(self.store), self.counters)
        self.exporter = ClickHouseExporter(
            self.spool,
            planner,
            self.pipeline.process,
            self.store,
            arrow_batch,
            self.dead_letters,
            self.counters,
            random.Random(1),
        )

    def letters(self) -> list[dict[str, Any]]:
        if not self.dead_letters.path.exists():
            return []
        return [json.loads(line) for line in self.dead_letters.path.read_text().splitlines()]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    parts = Parts(tmp_path / "spool")
    yield parts
    if parts.exporter._thread.is_alive():
        assert parts.exporter.stop(5.0)
    parts.spool.close()
    parts.plan_file.close()


def test_a_spooled_batch_is_inserted_under_its_own_id_and_released(
    parts: Parts, request_record: Make, batch_of: Make, eventually: Make
) -> None:
    parts.pipeline.accept("logs", batch_of("b1", request_record(duration_ns=1)), is_json=False)
    parts.exporter.start()
    parts.pipeline.accept("logs", batch_of("b2", request_record(duration_ns=2)), is_json=False)
    eventually(lambda: parts.spool.pending_bytes == 0, "the release")
    assert list(parts.store.kept) == [("requests", "b1"), ("requests", "b2")]
    assert parts.counters.snapshot()["exported"] == {"requests": 2}
    assert parts.exporter.store_reachable is True


@pytest.mark.parametrize(
    "failure",
    [
        StoreUnavailable("away"),
        ConfigurationError("a table is missing; run the migrations"),
        StoreRefused("forbidden", code="store_forbidden"),
    ],
)
def test_what_is_no_fault_of_the_rows_is_tried_again_until_it_works(
    parts: Parts, request_record: Make, batch_of: Make, eventually: Make, failure: TollkeeperError
) -> None:
    parts.store.failures = [failure, failure]
    parts.pipeline.accept("logs", batch_of("b", request_record(duration_ns=1)), is_json=False)
    parts.exporter.start()
    eventually(lambda: parts.spool.pending_bytes == 0, "the release")
    assert parts.store.durations() == [1]
    assert parts.letters() == []
    assert parts.counters.snapshot()["noticed"]["export_retries"] == 2


def test_a_right_that_the_store_s_user_lacks_is_named_and_nothing_is_lost(
    parts: Parts, request_record: Make, batch_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: list[Exception] = [StoreRefused("the store forbids a query to user 'writer'", code="store_forbidden")] * 2
    said: list[str] = []

    def query(sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        if refusals:
            raise refusals.pop()
        return []

    def waited() -> float:
        said.append(parts.exporter.failure)
        return 0.0

    monkeypatch.setattr(parts.store, "query", query)
    monkeypatch.setattr(parts.exporter._backoff, "next_seconds", waited)
    parts.pipeline.accept("logs", batch_of("b", request_record(duration_ns=1)), is_json=False)
    parts.exporter._insert_next()
    assert said == ["the store forbids a query to user 'writer'"] * 2
    assert (parts.store.durations(), parts.exporter.failure) == ([1], "")


def test_a_poisonous_row_goes_to_the_dead_letters_and_blocks_nobody(
    parts: Parts, request_record: Make, batch_of: Make, eventually: Make
) -> None:
    parts.store.poison = {3}
    records = [request_record(duration_ns=n) for n in range(7)]
    parts.pipeline.accept("logs", batch_of("b1", *records), is_json=False)
    parts.pipeline.accept("logs", batch_of("b2", request_record(duration_ns=100)), is_json=False)
    parts.exporter.start()
    eventually(lambda: parts.spool.pending_bytes == 0, "the release")
    assert parts.store.durations() == [0, 1, 2, 4, 5, 6, 100]
    (letter,) = parts.letters()
    assert (letter["cause"], letter["batch_id"], letter["index"]) == ("rejected_by_store", "b1", 3)
    assert letter["reason"] == "requests: poisonous"
    snapshot = parts.counters.snapshot()
    assert snapshot["exported"] == {"requests": 7}
    assert snapshot["rejected"] == {"rejected_by_store": 1}
    assert parts.dead_letters.written == 1


def test_a_value_no_column_holds_is_a_dead_letter_too(
    parts: Parts, request_record: Make, batch_of: Make, eventually: Make
) -> None:
    records = [request_record(duration_ns=n) for n in (1, -2, 3, 2**64 - 1)]
    parts.pipeline.accept("logs", batch_of("b", *records), is_json=False)
    parts.exporter.start()
    eventually(lambda: parts.spool.pending_bytes == 0, "the release")
    assert parts.store.durations() == [1, 3, 2**64 - 1]
    assert [letter["index"] for letter in parts.letters()] == [1]


def test_a_broken_record_is_a_dead_letter_with_its_bytes_even_after_retries(
    parts: Parts, request_record: Make, batch_of: Make, eventually: Make
) -> None:
    broken = batch_of("b", request_record(duration_ns=1)).replace(b"request.1", b"request.9", 1)
    parts.store.failures = [StoreUnavailable("away")]
    parts.pipeline.accept("logs", broken + batch_of("b", request_record(duration_ns=2)), is_json=False)
    parts.exporter.start()
    eventually(lambda: parts.spool.pending_bytes == 0, "the release")
    assert parts.store.durations() == [2]
    (letter,) = parts.letters()
    assert (letter["cause"], letter["at_ns"]) == ("undecodable_record", 7)
    assert b"request.9" in base64.b64decode(letter["payload"])


def test_a_batch_that_breaks_the_exporter_is_buried_after_five_tries(
    parts: Parts, request_record: Make, batch_of: Make, eventually: Make
) -> None:
    parts.store.failures = [RuntimeError("a defect")] * 5
    parts.pipeline.accept("logs", batch_of("bad", request_record(duration_ns=1)), is_json=False)
    parts.pipeline.accept("logs", batch_of("good", request_record(duration_ns=2)), is_json=False)
    parts.exporter.start()
    eventually(lambda: parts.spool.pending_bytes == 0, "the release")
    assert parts.store.durations() == [2]
    assert [(letter["cause"], letter["batch_id"]) for letter in parts.letters()] == [("export_failed", "bad")]


def test_a_batch_whose_bytes_no_version_reads_blocks_nobody(
    parts: Parts, request_record: Make, batch_of: Make, eventually: Make
) -> None:
    parts.spool.put([SpooledBatch("bad", "logs", 1, b"\xff")])
    parts.pipeline.accept("logs", batch_of("good", request_record(duration_ns=2)), is_json=False)
    parts.exporter.start()
    eventually(lambda: parts.spool.pending_bytes == 0, "the release")
    assert parts.store.durations() == [2]
    assert [(letter["cause"], letter["batch_id"]) for letter in parts.letters()] == [("unreadable_batch", "bad")]


def test_a_spool_that_cannot_be_released_or_read_for_a_while_ends_nothing(
    parts: Parts, request_record: Make, batch_of: Make, eventually: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.exporters.clickhouse._DISK_RETRY_SECONDS", 0.01)
    full = OSError(errno.ENOSPC, "No space left on device")
    failures = {"read": [full], "release": [full, full]}
    for name, pending in failures.items():
        works = getattr(parts.spool, name)

        def fails_first(*place: Any, works: Any = works, pending: list[OSError] = pending, **bounds: Any) -> Any:
            if pending:
                raise pending.pop()
            return works(*place, **bounds)

        monkeypatch.setattr(parts.spool, name, fails_first)
    for n in range(3):
        parts.pipeline.accept("logs", batch_of(f"b{n}", request_record(duration_ns=n)), is_json=False)
    parts.exporter.start()
    eventually(lambda: parts.spool.pending_bytes == 0, "the release")
    assert parts.store.durations() == [0, 1, 2]
    assert parts.store.calls == 3  # only the release was repeated
    assert parts.counters.snapshot()["noticed"]["spool_failures"] == 3


def test_a_turn_that_cannot_be_written_down_for_a_while_ends_nothing_and_leaves_nothing_in_doubt(
    parts: Parts,
    request_record: Make,
    batch_of: Make,
    eventually: Make,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("collector.exporters.clickhouse._DISK_RETRY_SECONDS", 0.01)
    turns, pwrite, failures = StoreLocks(tmp_path), os.pwrite, [OSError(errno.ENOSPC, "No space left on device")] * 2

    def fails_first(descriptor: int, data: bytes, offset: int) -> int:
        if failures and len(data) == 1:  # a turn's mark; the spool's own files are written as ever
            raise failures.pop()
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", fails_first)
    parts.exporter._turns = turns
    parts.pipeline.accept("logs", batch_of("b", request_record(duration_ns=1)), is_json=False)
    parts.exporter.start()
    eventually(lambda: parts.spool.pending_bytes == 0, "the release")
    assert parts.store.durations() == [1]
    assert parts.counters.snapshot()["noticed"]["spool_failures"] == 2
    with turns.held():
        pass  # would be refused, were a batch believed to be in doubt


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_plan_is_forced_to_the_disk_where_the_spool_is(
    is_synced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_file = PlanFile(tmp_path / "insert.plan", is_synced=is_synced)
    forced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", forced.append)
    plan_file.save(InsertPlan("token", (1, 20), 7))
    plan_file.close()
    assert len(forced) == is_synced


def test_a_stop_does_not_wait_for_a_spool_that_cannot_be_released(
    parts: Parts, request_record: Make, batch_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(upto: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parts.spool, "release", fails)
    parts.pipeline.accept("logs", batch_of("b", request_record(duration_ns=1)), is_json=False)
    parts.exporter.start()
    assert parts.exporter.stop(5.0)
    assert parts.spool.pending_bytes > 0


def test_a_stop_exports_what_waits_and_keeps_what_the_store_does_not_take(
    parts: Parts, request_record: Make, batch_of: Make
) -> None:
    for n in range(20):
        parts.pipeline.accept("logs", batch_of(f"b{n}", request_record(duration_ns=n)), is_json=False)
    parts.exporter.start()
    assert parts.exporter.stop(5.0)
    assert parts.store.durations() == list(range(20))


def test_a_stop_does_not_wait_for_a_store_that_is_away(parts: Parts, request_record: Make, batch_of: Make) -> None:
    parts.store.failures = [StoreUnavailable("away")] * 100
    parts.pipeline.accept("logs", batch_of("b", request_record()), is_json=False)
    parts.exporter.start()
    assert parts.exporter.stop(5.0)
    assert parts.store.calls <= 3
    assert parts.spool.pending_bytes > 0


@given(count=st.integers(1, 40), poison=st.sets(st.integers(0, 39)), crash_after=st.integers(0, 60))
def test_halving_stores_every_good_row_once_also_after_a_crash(count: int, poison: set[int], crash_after: int) -> None:
    records = [RequestRecord(request_id=bytes(16), started_at_ns=1, duration_ns=n) for n in range(count)]
    rows = TableRows(REQUESTS, records)
    store = RefusingStore()
    store.poison = poison
    first = insert_rows(store, arrow_batch, rows, "b")
    for _ in range(crash_after):  # stop in the middle, as a crash would
        if next(first, None) is None:
            break
    rejected = [row.index for row in insert_rows(store, arrow_batch, rows, "b")]
    assert rejected == sorted(poison & set(range(count)))
    assert store.durations() == [n for n in range(count) if n not in poison]


def test_backoff_doubles_to_five_seconds_with_jitter_and_begins_again() -> None:
    backoff = Backoff(random.Random(3))
    waits = [backoff.next_seconds() for _ in range(9)]
    for wait, longest in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0], strict=True):
        assert longest / 2 <= wait <= longest
    backoff.reset()
    assert backoff.next_seconds() <= 0.1


def test_the_dead_letter_file_is_bounded(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, max_bytes=4000, counters=Counters())
    for n in range(100):
        letters.write("cause", "reason", batch_id=str(n), index=n, payload=bytes(100))
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["letters.1.jsonl", "letters.jsonl"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4400
    assert letters.written == 100
    assert json.loads((tmp_path / "letters.jsonl").read_text().splitlines()[-1])["batch_id"] == "99"
