"""`tollkeeper store check`: a sound store passes, and every kind of damage is named."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from backends.segment_log.segments import SegmentLog
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.names import ATTEMPTS, ENGINE_STEPS, REQUESTS
from contracts.recording.records import AttemptRecord, GpuShare, RequestRecord, StepRecord
from tollkeeper.cli import app

NS = 10**9
BEGAN_NS = time.time_ns() - 600 * NS  # long enough ago for every record to be in


def request(number: int, **changes: Any) -> RequestRecord:
    at = BEGAN_NS + number * NS
    fields: dict[str, Any] = {
        "request_id": uuid7(at).bytes,
        "started_at_ns": at,
        "duration_ns": NS,
        "who": Identity("acme", user="ada"),
        "model": "tiny",
        "replica": "engine",
        "ttft_ns": 5_000_000 + number,
        "gaps": pack_gaps([100, 200 + number]),
        "usage": Usage(input_text=12, cache_read_text=4, output_text=3),
        "overrun_tokens": 1,
        "recompute_tokens": 2,
        "wasted_tokens": 0,
        "engine_output_tokens": 3,
        "gpu": GpuShare(prefill_ns=400, decode_ns=600),
        "cost_pico_usd": 10**6 + number,
        **changes,
    }
    return RequestRecord(**fields)


def step(sequence: int, served: RequestRecord, tokens: int) -> StepRecord:
    return StepRecord(
        engine="engine/1",
        sequence=sequence,
        started_at_ns=served.started_at_ns,
        busy_ns=1000,
        model="tiny",
        replica="one",
        request_ids=[served.request_id],
        tenants=["acme"],
        scheduled=[tokens],
        gpu_ns=[1000],
        method="m",
    )


def fill(store: Any) -> None:
    client = store.client()
    requests = [request(number) for number in range(6)]
    tried = request(7, attempts=2, request_id=uuid7(BEGAN_NS).bytes)
    attempts = [
        AttemptRecord(
            request_id=tried.request_id, number=number, started_at_ns=BEGAN_NS, duration_ns=1, who=Identity("acme")
        )
        for number in (1, 2)
    ]
    # Uncached input, the answer without its last token, and what was computed beside: 12 + 3 - 1 + 1 + 2.
    steps = [step(number, served, 17) for number, served in enumerate(requests, 1)]
    for table, records in ((REQUESTS, [*requests[:3]]), (REQUESTS, [*requests[3:], tried]), (ATTEMPTS, attempts)):
        client.insert_arrow(table.name, arrow_batch(table, records), deduplication_token=str(uuid7(time.time_ns())))
    client.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token="steps")
    client.close()


def check(store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[int, dict[str, Any]]:
    for name, value in store.environment.items():
        if name.startswith("TOLLKEEPER_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOLLKEEPER_DATABASE_URL", f"sqlite:///{tmp_path / 'control.db'}")
    result = CliRunner().invoke(app, ["store", "check", "--json"])
    assert result.exit_code in (0, 1), result.output
    return result.exit_code, json.loads(result.stdout)


def flip_a_byte(client: Any, table: str) -> None:
    """Change one byte of a table's largest file, as a failing disk does."""
    (row,) = client.query(
        "SELECT data_paths FROM system.tables WHERE database = currentDatabase() AND name = {name:String}",
        {"name": table},
    )
    files = [path for path in Path(row["data_paths"][0]).rglob("*.bin") if "detached" not in path.parts]
    largest = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)


DAMAGES = {
    "sequence_gap engine_steps": "ALTER TABLE engine_steps DELETE WHERE sequence = 3",
    "sequence_doubled engine_steps": "INSERT INTO engine_steps SELECT * FROM engine_steps WHERE sequence = 1 "
    "SETTINGS insert_deduplicate = 0",
    "attempts_missing attempts": "ALTER TABLE attempts DELETE WHERE number = 2",
    "rollup_differs requests_hour": "INSERT INTO requests_hour (bucket, tenant, requests) "
    "SELECT bucket, tenant, 1 FROM requests_hour LIMIT 1",
    "rollup_differs distinct_values": "ALTER TABLE distinct_values DELETE WHERE kind = 'model'",
    # The counts stay as they were: only the sketch is another.
    "rollup_differs latency_day": "INSERT INTO latency_day (bucket, tenant, model, ttft_state) "
    "SELECT (SELECT min(bucket) FROM latency_day), 'acme', 'tiny', "
    "quantilesDDState(0.01, 0.5, 0.9, 0.95, 0.99)(toUInt64(number * 1000000000)) FROM numbers(50)",
}


def test_a_sound_store_passes_and_every_damage_is_named(
    other_store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fill(other_store)
    status, report = check(other_store, monkeypatch, tmp_path)
    assert (status, report["findings"]) == (0, [])
    tokens = {name: sum(line[name] for line in report["tokens"]) for name in ("billed", "overrun", "recompute")}
    assert tokens == {"billed": 6 * 14, "overrun": 6, "recompute": 12}
    assert sum(line["engine_tokens"] for line in report["tokens"]) == 6 * 17

    client = other_store.client()
    for damage in DAMAGES.values():
        client.command(damage, settings={"mutations_sync": 2})
    flip_a_byte(client, "tenant_cost_day")
    client.close()
    status, report = check(other_store, monkeypatch, tmp_path)
    found = [f"{finding['kind']} {finding['where']}" for finding in report["findings"]]
    assert status == 1
    # A step that is gone is tokens that were never computed; one that came twice, tokens that were computed twice.
    assert {*DAMAGES, "damaged_part tenant_cost_day", "tokens_differ one"} <= set(found), report
    assert found.count("sequence_gap engine_steps") == 1
    (gap,) = [finding for finding in report["findings"] if finding["kind"] == "sequence_gap"][:1]
    assert gap["detail"] == "engine engine/1: 1 of 1-6 missing: 3-3"
    assert "requests_minute" not in " ".join(found), "what is sound is named"


def test_an_engine_s_work_for_a_request_without_a_record_is_a_finding(
    other_store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client = other_store.client()
    steps = [step(1, request(1), 17)]
    client.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token="lost")
    client.close()
    status, report = check(other_store, monkeypatch, tmp_path)
    (finding,) = report["findings"]
    assert status == 1 and finding["kind"] == "tokens_differ" and "unbooked 17" in finding["detail"]


def test_a_request_lost_in_a_crash_has_no_rows_of_its_tries_and_its_estimate_is_not_judged(
    other_store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lost = {"outcome": "error", "status": 500, "error_code": "lost_in_crash", "count_method": "estimate"}
    requests = [request(1, **lost), request(2, attempts=2, **lost)]
    client = other_store.client()
    client.insert_arrow(REQUESTS.name, arrow_batch(REQUESTS, requests), deduplication_token="lost")
    client.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, [step(1, requests[0], 40)]), deduplication_token="s")
    client.close()
    status, report = check(other_store, monkeypatch, tmp_path)
    assert (status, report["findings"]) == (0, [])
    assert sum(line["lost_requests"] for line in report["tokens"]) == 1
    assert all(line["retried"] == 0 for line in report["tokens"])


def test_what_a_crash_left_is_a_line_of_its_own_and_no_finding(
    other_store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client = other_store.client()
    whole, cut, gone, late = request(1), request(2, gpu=None, outcome="error"), request(3), request(4, gpu=None)
    left_behind = AttemptRecord(
        request_id=gone.request_id, number=0, started_at_ns=gone.started_at_ns, duration_ns=1, who=Identity("acme"),
        error_code="lost_in_crash", gpu=GpuShare(prefill_ns=1000),
    )  # fmt: skip
    # The second's engine host died three tokens before its last step was told, the third's gateway before its record.
    steps = [step(1, whole, 17), step(2, cut, 14), step(3, gone, 9), step(4, late, 20)]
    client.insert_arrow("requests", arrow_batch(REQUESTS, [whole, cut, late]), deduplication_token="crash r")
    client.insert_arrow("attempts", arrow_batch(ATTEMPTS, [left_behind, left_behind]), deduplication_token="crash a")
    client.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token="crash s")
    client.close()
    status, report = check(other_store, monkeypatch, tmp_path)
    assert (status, report["findings"]) == (0, [])
    lost = sum(line["lost_in_crash"] for line in report["tokens"])
    assert (lost, sum(line["lost_requests"] for line in report["tokens"])) == (-3 + 9 + 3, 3)
    assert all(line["lost_from"].startswith("20") for line in report["tokens"] if line["lost_requests"])
    sums = {name: sum(line[name] for line in report["gpu"]) for name in ("steps_ns", "booked_ns", "lost_in_crash_ns")}
    assert sums == {"steps_ns": 4000, "booked_ns": 2000, "lost_in_crash_ns": 2000}


def test_gpu_time_that_is_not_what_the_steps_say_is_a_finding(
    other_store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client = other_store.client()
    short = request(1, gpu=GpuShare(prefill_ns=999))
    client.insert_arrow("requests", arrow_batch(REQUESTS, [short]), deduplication_token="short r")
    client.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, [step(1, short, 17)]), deduplication_token="short s")
    client.close()
    status, report = check(other_store, monkeypatch, tmp_path)
    [finding] = report["findings"]
    assert status == 1 and finding["kind"] == "gpu_time_differs" and "difference 1, 1 requests" in finding["detail"]


def test_what_damage_took_of_a_journal_is_a_finding(
    other_store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("journal", "spool"):
        directory = other_store.data / name
        log = SegmentLog(directory, max_bytes=1 << 20)
        log.append_many([bytes(5000), b"after"])
        log.close()
        (path,) = directory.glob("*.segment")
        path.write_bytes(b"\xff" * 4096 + path.read_bytes()[4096:])
        SegmentLog(directory, max_bytes=1 << 20).close()
    status, report = check(other_store, monkeypatch, tmp_path)
    for name in ("journal", "spool"):
        shutil.rmtree(other_store.data / name)
    assert status == 1
    assert [(finding["kind"], finding["where"]) for finding in report["findings"]] == [
        ("entries_missing", "journal"),
        ("entries_missing", "spool"),
    ]
    assert report["findings"][0]["detail"].startswith("1 entry (number 1) written")
    assert report["findings"][0]["detail"].endswith("the segment is kept as damaged/000000000001.segment")
