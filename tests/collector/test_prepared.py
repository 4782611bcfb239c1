"""What is prepared ahead of its insert: all that waits, in order, up to an insert's size, or nothing."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from backends.segment_log.segments import SegmentLog
from backends.store.columns import arrow_batch
from collector.exporters.prepared import PreparedInsert, ReadAhead
from collector.rows import BrokenRecord, Processed
from collector.spool import Spool, SpooledBatch
from contracts.recording.names import REQUESTS, Table
from contracts.recording.records import RequestRecord


def process(batch: SpooledBatch) -> Processed:
    if batch.payload == b"defect":
        raise RuntimeError("a defect")
    processed = Processed()
    processed.notice(["clamped_time"])
    if batch.payload == b"broken":
        processed.broken.append(BrokenRecord(0, "undecodable_record", "it is broken", b"?"))
    else:
        processed.add(REQUESTS, RequestRecord(request_id=bytes(16), started_at_ns=1, duration_ns=int(batch.batch_id)))
    return processed


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(SegmentLog(tmp_path, max_bytes=1 << 20))


def put(spool: Spool, *numbers: int, payload: bytes = b"") -> None:
    spool.put([SpooledBatch(str(number), "logs", 1, payload) for number in numbers])


def durations(prepared: PreparedInsert | None) -> list[int]:
    assert prepared is not None
    return [n for _, data in prepared.tables() for n in data["duration_ns"].to_pylist()]


def test_all_that_waits_is_prepared_in_its_order(spool: Spool) -> None:
    put(spool, 1, 2)
    put(spool, 3, payload=b"broken")
    ahead = ReadAhead(spool, process, arrow_batch)
    ahead.begin(spool.cursor)
    prepared = ahead.take(spool.cursor)
    assert durations(prepared) == [1, 2]
    assert prepared is not None
    assert ([batch_id for batch_id, _ in prepared.broken], prepared.noticed) == (["3"], {"clamped_time": 3})
    assert prepared.entries == spool.read(spool.cursor, max_bytes=1 << 20)
    assert ahead.take(spool.cursor) is None


def test_what_comes_meanwhile_is_prepared_too(spool: Spool) -> None:
    seen = threading.Event()

    def noting(batch: SpooledBatch) -> Processed:
        if batch.batch_id == "2":
            seen.set()
        return process(batch)

    ahead = ReadAhead(spool, noting, arrow_batch)
    ahead.begin(spool.cursor)
    put(spool, 1)
    put(spool, 2)
    assert seen.wait(20)
    assert durations(ahead.take(spool.cursor)) == [1, 2]


def test_no_more_than_an_insert_is_prepared(spool: Spool) -> None:
    put(spool, *range(9))
    ahead = ReadAhead(spool, process, arrow_batch, insert_bytes=60)
    ahead.begin(spool.cursor)
    assert 0 < len(durations(ahead.take(spool.cursor))) < 9


def test_what_was_prepared_from_another_place_is_not_given(spool: Spool) -> None:
    put(spool, 1, 2)
    first, *_ = spool.read(spool.cursor, max_bytes=1 << 20)
    ahead = ReadAhead(spool, process, arrow_batch)
    ahead.begin(spool.cursor)
    assert ahead.take(first.end) is None


def test_a_batch_that_cannot_be_processed_is_left_to_who_inserts_it(spool: Spool) -> None:
    put(spool, 1, payload=b"defect")
    ahead = ReadAhead(spool, process, arrow_batch)
    ahead.begin(spool.cursor)
    assert ahead.take(spool.cursor) is None
    with pytest.raises(RuntimeError, match="a defect"):
        ahead.prepare(spool.read(spool.cursor, max_bytes=1 << 20))


def test_rows_that_could_not_be_built_at_first_are_built_when_asked_again(spool: Spool) -> None:
    put(spool, 1, 2)
    faults: list[Exception] = [MemoryError()]

    def build(table: Table[Any], rows: Sequence[Any]) -> pyarrow.Table:
        if faults:
            raise faults.pop()
        return arrow_batch(table, rows)

    prepared = ReadAhead(spool, process, build).prepare(spool.read(spool.cursor, max_bytes=1 << 20))
    with pytest.raises(MemoryError):
        prepared.tables()
    assert durations(prepared) == durations(prepared) == [1, 2]
