import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from backends.segment_log.segments import SegmentLog
from collector.counters import Counters
from collector.dead_letters import DeadLetters
from collector.spool import Spool, SpooledBatch
from contracts.access.identity import Identity
from contracts.recording.records import RequestRecord, encode_record
from gateway.records.dead_letters import DeadLetters as GatewayDeadLetters
from tollkeeper.cli import app

SECOND_NS = 1_000_000_000


def batch(batch_id: str, at_seconds: int, signal: str = "logs") -> SpooledBatch:
    return SpooledBatch(batch_id, signal, at_seconds * SECOND_NS, b"payload")  # type: ignore[arg-type]


def inspect(data: Path, *options: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["spool", "inspect", "--data", str(data), "--json", *options])
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.output)
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    log = SegmentLog(tmp_path / "spool", max_bytes=1 << 20)
    spool = Spool(log)
    spool.put([batch("a", 1), batch("b", 2)])
    spool.release(spool.read(spool.cursor, max_bytes=1)[0].end)
    spool.put([batch("c", 3, "traces"), batch("d", 4)])
    log.append(b"\x91\xa7batch.9")
    letters = DeadLetters(tmp_path / "spool", max_bytes=1 << 20, counters=Counters(), clock_ns=lambda: 5 * SECOND_NS)
    letters.write("rejected_by_store", "requests: [red]poisonous", batch_id="x", index=3, payload=b"a secret prompt")
    letters.write("undecodable_record", "it is broken", batch_id="y", index=0, payload=b"?")
    record = RequestRecord(request_id=bytes(16), started_at_ns=1, duration_ns=1, who=Identity("acme"))
    aside = GatewayDeadLetters(tmp_path / "journal" / "dead-letters", max_bytes=1 << 20)
    assert aside.add((1).to_bytes(8, "little") + encode_record(record))
    return tmp_path  # the log stays open: a collector is running


def test_what_waits_and_what_could_not_be_stored_is_shown_beside_a_running_collector(data: Path) -> None:
    found = inspect(data)
    assert found["waiting_batches"] == {"logs": 2, "traces": 1, "unreadable": 1}
    assert (found["oldest_received_at"], found["newest_received_at"]) == (
        "1970-01-01T00:00:02.000+00:00",
        "1970-01-01T00:00:04.000+00:00",
    )
    assert found["dead_letters"] == {"rejected_by_store": 1, "undecodable_record": 1}
    assert found["gateway_dead_letters"] == {"tollkeeper.request": 1}
    assert found["damaged_stretches"] == 0
    assert isinstance(found["waiting_bytes"], int) and found["waiting_bytes"] > 0


def test_the_last_letters_are_shown_with_their_reason_and_never_with_what_they_hold(data: Path) -> None:
    found = inspect(data, "--letters", "1")
    assert found["last_dead_letters"] == [
        {
            "at": "1970-01-01T00:00:05.000+00:00",
            "cause": "undecodable_record",
            "reason": "it is broken",
            "batch_id": "y",
            "index": 0,
            "bytes": 1,
        }
    ]
    shown = CliRunner().invoke(app, ["spool", "inspect", "--data", str(data)]).output
    assert "waiting:" in shown
    assert "2 of logs, 1 of traces, 1 of unreadable" in shown
    assert "secret" not in shown
    assert "[red]poisonous" in " ".join(shown.split())


def test_damage_is_counted_and_what_follows_it_still_read(data: Path) -> None:
    segment = max((data / "spool").glob("*.segment"))
    whole = bytearray(segment.read_bytes())
    whole[whole.index(b"batch.1", len(whole) // 4) + 20] ^= 0xFF
    segment.write_bytes(whole)
    found = inspect(data)
    assert found["damaged_stretches"] == 1
    assert sum(found["waiting_batches"].values()) == 3  # type: ignore[attr-defined]


def test_a_directory_without_a_spool_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["spool", "inspect", "--data", str(tmp_path)])
    assert result.exit_code == 2


def test_an_empty_spool_says_that_nothing_waits(tmp_path: Path) -> None:
    SegmentLog(tmp_path / "spool", max_bytes=1 << 20).close()
    found = inspect(tmp_path)
    assert (found["waiting_bytes"], found["waiting_batches"], found["oldest_received_at"]) == (0, {}, None)
    shown = CliRunner().invoke(app, ["spool", "inspect", "--data", str(tmp_path)]).output
    assert "batches: none" in shown


def test_a_damaged_line_of_dead_letters_is_counted(data: Path) -> None:
    path = data / "spool" / "letters.jsonl"
    path.write_bytes(bytes(100) + path.read_bytes()[100:])
    assert inspect(data)["dead_letters"] == {"unreadable": 1, "undecodable_record": 1}


def test_what_the_collector_has_found_missing_is_shown(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path / "spool", max_bytes=1 << 20)
    log.append_many([bytes(5000), b"after"])
    log.close()
    (path,) = (tmp_path / "spool").glob("*.segment")
    path.write_bytes(bytes(4096) + path.read_bytes()[4096:])
    SegmentLog(tmp_path / "spool", max_bytes=1 << 20).close()
    assert inspect(tmp_path)["missing"]["entries"] == 1  # type: ignore[index]
    shown = CliRunner().invoke(app, ["spool", "inspect", "--data", str(tmp_path)]).output
    assert "missing: 1 entries lost to damage on disk" in " ".join(shown.split())
