"""Several batches in one insert, by several collectors that merge them differently: each batch is stored once."""

import itertools
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.segment_log.segments import SegmentLog
from backends.store.batch_claims import TABLE, BatchClaims
from backends.store.columns import arrow_batch
from collector.counters import Counters
from collector.dead_letters import DeadLetters
from collector.exporters.clickhouse import ClickHouseExporter
from collector.exporters.insert_plan import PlanFile
from collector.exporters.planner import ANOTHERS, InsertPlanner
from collector.rows import BrokenRecord, Processed
from collector.spool import Spool, SpooledBatch
from contracts.errors import StoreRefused
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord

COLLECTORS = 3
BATCHES = 6
ROWS = 2  # in each


class Killed(BaseException):
    """The process ends here: nothing of it runs on."""


class CrashingStore:
    """Base and view per token, as ClickHouse keeps them, claims in the order of their commits, and death at will."""

    def __init__(self) -> None:
        self.base: dict[str, list[int]] = {}
        self.view: dict[str, list[int]] = {}
        self.claims: list[tuple[str, int]] = []
        self.engine = "MergeTree"
        self.dies_in = -1  # steps from now; negative: never

    def insert_arrow(self, table: str, data: pyarrow.Table, *, deduplication_token: str) -> None:
        self._step()
        if table == TABLE:
            self.claims += zip(data["batch_id"].to_pylist(), data["received_at_ns"].to_pylist(), strict=True)
            self._step()
            return
        rows = data["duration_ns"].to_pylist()
        self.base.setdefault(deduplication_token, rows)
        self._step()
        self.view.setdefault(deduplication_token, rows)
        self._step()

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
        self._step()
        if "system.tables" in sql:
            return [{"engine": self.engine}]
        ids = (parameters or {})["ids"]
        assert isinstance(ids, list)
        first: dict[str, int] = {}
        for batch_id, received_at_ns in self.claims:
            if batch_id in ids:
                first.setdefault(batch_id, received_at_ns)
        return [{"batch_id": name, "first_received_at_ns": at_ns} for name, at_ns in first.items()]

    def ping(self) -> bool:
        return True

    def _step(self) -> None:
        if self.dies_in == 0:
            self.dies_in = -1
            raise Killed
        self.dies_in -= 1


def process(batch: SpooledBatch) -> Processed:
    """Rows that tell by their duration which batch they are of."""
    processed = Processed()
    if batch.payload == b"broken":
        processed.broken.append(BrokenRecord(0, "undecodable_record", "it is broken", b"?"))
        return processed
    for row in range(ROWS):
        number = int(batch.batch_id) * ROWS + row
        processed.add(REQUESTS, RequestRecord(request_id=bytes(16), started_at_ns=1, duration_ns=number))
    return processed


class SmallCollector:
    """A spool and an exporter that is led by hand; it can be killed at any step and opened again."""

    def __init__(self, directory: Path, store: CrashingStore, clock: Iterator[int]) -> None:
        self._directory = directory
        self._store = store
        self._clock = clock
        self.counters = Counters()
        self.open()

    def open(self) -> None:
        # One id is remembered, so that also one collector takes a batch again that it has had.
        self.spool = Spool(SegmentLog(self._directory, max_bytes=1 << 20, retain_bytes=0), recent_ids=1)
        self.plan_file = PlanFile(self._directory / "insert.plan")
        planner = InsertPlanner(self.spool, self.plan_file, BatchClaims(self._store), self.counters)
        letters = DeadLetters(self._directory, max_bytes=1 << 20, counters=self.counters)
        self.exporter = ClickHouseExporter(
            self.spool, planner, process, self._store, arrow_batch, letters, self.counters, random.Random(1)
        )

    def take(self, *batch_ids: str, payload: bytes = b"", is_named: bool = True) -> None:
        self.spool.put([SpooledBatch(name, "logs", next(self._clock), payload, is_named) for name in batch_ids])

    def insert(self, dies_in: int = -1) -> None:
        if not self.spool.pending_bytes:
            return
        self._store.dies_in = dies_in
        try:
            self.exporter._insert_next()
        except Killed:
            self.close()
            self.open()
        self._store.dies_in = -1

    def drain(self) -> None:
        while self.spool.pending_bytes:
            self.insert()

    def close(self) -> None:
        self.spool.close()
        self.plan_file.close()


@pytest.fixture
def collector_at(tmp_path: Path) -> Iterator[Callable[..., SmallCollector]]:
    store, clock, made = CrashingStore(), itertools.count(1), list[SmallCollector]()

    def make(name: str = "one", store: CrashingStore = store) -> SmallCollector:
        made.append(SmallCollector(tmp_path / name, store, clock))
        return made[-1]

    yield make
    for collector in made:
        collector.close()


def inserted(store: CrashingStore) -> list[list[int]]:
    assert store.base == store.view
    return list(store.base.values())


sends = st.tuples(
    st.just("send"), st.integers(0, COLLECTORS - 1), st.lists(st.integers(0, BATCHES - 1), min_size=1, max_size=4)
)
inserts = st.tuples(st.just("insert"), st.integers(0, COLLECTORS - 1), st.integers(-1, 8))


@settings(max_examples=40)
@given(actions=st.lists(st.one_of(sends, inserts), max_size=25))
def test_each_batch_is_stored_once_however_collectors_share_it_and_die(actions: list[Any]) -> None:
    store, clock, sent = CrashingStore(), itertools.count(1), set[int]()
    with tempfile.TemporaryDirectory() as home:
        collectors = [SmallCollector(Path(home) / str(n), store, clock) for n in range(COLLECTORS)]
        for action, number, what in actions:
            if action == "send":
                collectors[number].take(*map(str, what))
                sent.update(what)
            else:
                collectors[number].insert(dies_in=what)
        for collector in collectors:
            collector.drain()
            collector.close()
    expected = sorted(batch * ROWS + row for batch in sent for row in range(ROWS))
    assert sorted(itertools.chain.from_iterable(store.base.values())) == expected
    assert sorted(itertools.chain.from_iterable(store.view.values())) == expected


def test_what_waits_goes_in_one_insert_after_the_very_first(collector_at: Callable[..., SmallCollector]) -> None:
    collector = collector_at()
    collector.take("0", "1", "2")
    collector.take("3")
    collector.drain()
    assert inserted(collector._store) == [[0, 1], [2, 3, 4, 5, 6, 7]]


def test_a_batch_alone_is_inserted_under_its_own_id(collector_at: Callable[..., SmallCollector]) -> None:
    collector = collector_at()
    collector.take("1")
    collector.drain()
    assert list(collector._store.base) == ["1"]


def test_a_store_that_does_not_order_claims_gets_every_batch_alone_under_its_own_id(
    collector_at: Callable[..., SmallCollector],
) -> None:
    store = CrashingStore()
    store.engine = "ReplicatedMergeTree"
    collector = collector_at(store=store)
    collector.take("0", "1", "2")
    collector.drain()
    assert list(store.base) == ["0", "1", "2"]
    assert store.claims == []


def test_batches_that_no_sender_named_are_not_claimed(collector_at: Callable[..., SmallCollector]) -> None:
    collector = collector_at()
    collector.take("0", "1", "2", is_named=False)
    collector.drain()
    assert inserted(collector._store) == [[0, 1], [2, 3, 4, 5]]
    assert collector._store.claims == []


def test_a_batch_that_another_claimed_before_is_left_to_it_and_counted(
    collector_at: Callable[..., SmallCollector],
) -> None:
    one, two = collector_at("one"), collector_at("two")
    one.take("0", "1")
    one.insert()  # the first goes alone
    one.insert(dies_in=3)  # claimed and looked up, and never inserted by then
    two.take("5")
    two.insert()
    two.take("1", "2")
    two.drain()
    assert two.counters.snapshot()["noticed"] == {ANOTHERS: 1}
    assert inserted(two._store) == [[0, 1], [10, 11], [4, 5]]
    one.drain()
    assert inserted(one._store) == [[0, 1], [10, 11], [4, 5], [2, 3]]


def test_a_broken_record_and_a_refused_row_name_the_batch_they_came_in(
    collector_at: Callable[..., SmallCollector],
) -> None:
    collector = collector_at()
    collector.take("0")
    collector.drain()
    collector.take("1", "2")
    collector.take("3", payload=b"broken")
    takes = collector._store.insert_arrow

    def refuse_five(table: str, data: pyarrow.Table, *, deduplication_token: str) -> None:
        if table != TABLE and 5 in data["duration_ns"].to_pylist():
            raise StoreRefused("poisonous")
        takes(table, data, deduplication_token=deduplication_token)

    collector._store.insert_arrow = refuse_five  # type: ignore[method-assign]
    collector.drain()
    letters = (collector._directory / "letters.jsonl").read_text()
    assert '"cause":"rejected_by_store","reason":"requests: poisonous","batch_id":"2","index":1' in letters
    assert '"cause":"undecodable_record","reason":"it is broken","batch_id":"3","index":0' in letters
    assert sorted(itertools.chain.from_iterable(inserted(collector._store))) == [0, 1, 2, 3, 4]


def test_one_batch_that_cannot_be_processed_takes_no_neighbour_along(
    collector_at: Callable[..., SmallCollector], monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = collector_at()
    collector.take("0")
    collector.drain()

    def fails(batch: SpooledBatch) -> Processed:
        if batch.batch_id == "2":
            raise RuntimeError("a defect")
        return process(batch)

    collector.exporter._process = fails
    monkeypatch.setattr(collector.exporter._backoff, "next_seconds", lambda: 0.0)
    collector.take("1", "2", "3")
    collector.drain()
    assert inserted(collector._store) == [[0, 1], [2, 3, 6, 7]]
    assert collector.counters.snapshot()["rejected"] == {"export_failed": 1}


def test_a_senders_long_id_is_claimed_and_inserted_by_its_digest(collector_at: Callable[..., SmallCollector]) -> None:
    collector = collector_at()
    collector.take("0" * 300)
    collector.drain()
    ((name, _),) = collector._store.claims
    assert len(name) == 64
    assert [len(token) for token in collector._store.base] == [64]


def test_a_plan_of_another_spool_is_made_anew(collector_at: Callable[..., SmallCollector]) -> None:
    collector = collector_at()
    collector.take("0", "1")
    collector.insert()
    collector.insert(dies_in=4)  # the plan for the second is on disk, its insert is not done
    collector.close()
    for path in collector._directory.glob("*"):
        if path.name != "insert.plan":
            path.unlink()
    collector.open()
    collector.take("3", "4")
    collector.drain()
    collector.drain()
    rows = list(itertools.chain.from_iterable(collector._store.view.values()))
    assert sorted(rows) == [0, 1, 6, 7, 8, 9]


def test_an_insert_whose_first_batch_is_damaged_afterwards_is_repeated_under_its_token(
    collector_at: Callable[..., SmallCollector], monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = collector_at()
    collector.take("0")
    collector.drain()
    collector.take("1", "2", "3", payload=bytes(3000))

    def killed(upto: object) -> None:
        raise Killed

    monkeypatch.setattr(collector.spool, "release", killed)
    with pytest.raises(Killed):
        collector.exporter._insert_next()
    (entry, *_) = collector.spool.read(collector.spool.cursor, max_bytes=1)
    collector.close()
    path = collector._directory / f"{entry.end.segment:012d}.segment"
    content = bytearray(path.read_bytes())
    content[entry.end.offset - 2000 : entry.end.offset - 1000] = b"\xff" * 1000
    path.write_bytes(content)
    collector.open()
    assert collector.spool.missing.entries == 1
    collector.drain()
    assert inserted(collector._store) == [[0, 1], [2, 3, 4, 5, 6, 7]]
