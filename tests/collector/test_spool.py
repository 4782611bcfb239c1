from pathlib import Path

import pytest

from backends.segment_log.segments import SegmentLog
from collector.spool import Spool, SpooledBatch
from contracts.errors import LimitExceeded


def opened(directory: Path, *, max_bytes: int = 1 << 20, recent_ids: int = 100) -> Spool:
    return Spool(SegmentLog(directory, max_bytes=max_bytes, retain_bytes=1 << 20), recent_ids=recent_ids)


def batch(batch_id: str, payload: bytes = b"payload") -> SpooledBatch:
    return SpooledBatch(batch_id, "logs", 1_000, payload)


def waiting(spool: Spool) -> list[str]:
    return [entry.batch.batch_id for entry in spool.read(spool.cursor, max_bytes=1 << 20) if entry.batch]


def test_a_batch_that_comes_again_is_acknowledged_and_dropped(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    assert spool.put([batch("a"), batch("b")]) == 2
    assert spool.put([batch("b"), batch("c"), batch("c")]) == 1
    assert waiting(spool) == ["a", "b", "c"]
    spool.close()


def test_an_exported_batch_is_known_again_after_a_restart(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    spool.put([batch("a")])
    spool.release(spool.read(spool.cursor, max_bytes=1)[0].end)
    spool.close()
    again = opened(tmp_path)
    assert again.put([batch("a"), batch("b")]) == 1
    assert waiting(again) == ["b"]
    again.close()


def test_the_index_of_ids_is_bounded_and_forgets_the_oldest(tmp_path: Path) -> None:
    spool = opened(tmp_path, recent_ids=2)
    spool.put([batch("a"), batch("b"), batch("c")])
    assert spool.put([batch("b")]) == 0
    assert spool.put([batch("a")]) == 1
    spool.close()


@pytest.mark.parametrize("length", [64, 65, 100_000])
def test_a_long_id_is_known_again_and_takes_no_more_memory_than_a_digest(tmp_path: Path, length: int) -> None:
    spool, first, second = opened(tmp_path), "x" * (length - 1) + "1", "x" * (length - 1) + "2"
    assert spool.put([batch(first)]) == 1
    assert spool.put([batch(first), batch(second)]) == 1
    assert waiting(spool) == [first, second]
    assert [len(name) for name in spool._recent] == [64, 64]
    spool.close()


def test_a_full_spool_asks_the_sender_to_come_back_and_takes_the_batch_then(tmp_path: Path) -> None:
    spool = opened(tmp_path, max_bytes=200)
    spool.put([batch("a", bytes(100))])
    with pytest.raises(LimitExceeded, match="TOLLKEEPER_SPOOL_MAX_BYTES") as caught:
        spool.put([batch("b", bytes(100))])
    assert (caught.value.error_code, caught.value.status, caught.value.retry_after_seconds) == ("spool_full", 429, 5.0)
    spool.release(spool.read(spool.cursor, max_bytes=1)[0].end)
    assert spool.put([batch("b", bytes(100))]) == 1
    spool.close()


def test_an_entry_of_an_unknown_version_is_given_as_unreadable(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path, max_bytes=1000)
    log.append(b"\x91\xa7batch.9")
    spool = Spool(log)
    (entry,) = spool.read(spool.cursor, max_bytes=100)
    assert entry.batch is None
    assert entry.raw == b"\x91\xa7batch.9"
    spool.close()


def test_the_oldest_waiting_batch_tells_its_age(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    assert spool.oldest_received_at_ns() is None
    spool.put([SpooledBatch("a", "logs", 5, b""), SpooledBatch("b", "logs", 7, b"")])
    assert spool.oldest_received_at_ns() == 5
    spool.release(spool.read(spool.cursor, max_bytes=1)[0].end)
    assert spool.oldest_received_at_ns() == 7
    spool.close()
