"""The engine's books: each step is split to the nanosecond, each moment is on a line, each block is told of."""

import random
import time

import pytest

from algorithms.gpu_time.ledger import ledger_lines
from backends.engine.torch_engine.step_meter import StepMeter
from bench.torch_driver import run
from contracts.recording.records import KvRecord, StepRecord
from tests.backends.engine.torch_engine.tiny_models import random_ids, request


def serve(engine, count=12, **options):
    options = {"max_tokens": 20} | options
    source = random.Random(1)
    batch = [
        request(number, random_ids(source, 8 + 7 * number), tenant=f"tenant{number % 3}", **options)
        for number in range(count)
    ]
    return run(engine, batch)


def steps_of(records: list[StepRecord]) -> list[StepRecord]:
    return [record for record in records if record.kind == "step"]


def test_the_parts_of_every_step_sum_to_it_and_to_what_requests_are_told(llama, make_engine):
    engine = make_engine(llama.path, kv_blocks=32, max_batch_tokens=24)
    answers = serve(engine, max_tokens=60)
    steps = steps_of(engine.take_steps())
    charged: dict[bytes, int] = {}
    for step in steps:
        assert sum(step.gpu_ns) == step.busy_ns > 0
        assert len(step.request_ids) == len(step.tenants) == len(step.scheduled) == len(step.context)
        for request_id, part in zip(step.request_ids, step.gpu_ns, strict=True):
            charged[request_id] = charged.get(request_id, 0) + part
    recomputed = 0
    for request_id, answer in answers.items():
        gpu = answer.account.gpu
        assert gpu is not None
        assert gpu.prefill_ns + gpu.decode_ns + gpu.recompute_ns == charged[request_id]
        assert gpu.kv_block_seconds > 0
        assert (gpu.recompute_ns > 0) == (answer.account.recompute_tokens > 0)
        recomputed += answer.account.recompute_tokens
    assert recomputed > 0
    assert sum(map(sum, (step.recompute for step in steps))) == recomputed


def test_every_computed_token_is_in_exactly_one_row(llama, make_engine):
    engine = make_engine(llama.path)
    answers = serve(engine)
    rows: dict[bytes, list[tuple[int, int, int]]] = {}
    for step in steps_of(engine.take_steps()):
        for row in zip(step.request_ids, step.context, step.scheduled, step.phases, strict=True):
            rows.setdefault(row[0], []).append(row[1:])
    for request_id, own in rows.items():
        usage = answers[request_id].account.usage
        begin = usage.cache_read_tokens or 0
        for context, scheduled, _ in own:
            assert context == begin
            begin += scheduled
        # The last token is told but never computed.
        assert begin == (usage.input_tokens or 0) + (usage.output_tokens or 0) - 1
        assert [phase for _, _, phase in own].count(1) == (usage.output_tokens or 0) - 1


def test_records_are_numbered_without_holes_and_times_do_not_overlap(llama, make_engine):
    engine = make_engine(llama.path)
    records = []
    for _ in range(3):
        serve(engine, 3)
        records += engine.take_steps()
    assert [record.sequence for record in records] == list(range(1, len(records) + 1))
    for before, after in zip(records, records[1:], strict=False):
        assert before.started_at_ns + before.busy_ns <= after.started_at_ns - after.gap_ns


@pytest.mark.alone
def test_the_ledger_of_a_life_closes(llama, make_engine):
    began = time.time_ns()
    engine = make_engine(llama.path, kv_blocks=32, max_batch_tokens=24)
    engine.warm_up()
    for _ in range(4):
        serve(engine, 10)
        time.sleep(0.02)  # idleness is what is measured
    records = engine.take_steps()
    ended = max(record.started_at_ns + record.busy_ns for record in records)
    (lines,) = ledger_lines(records, began, ended).values()
    assert lines.load_ns > 0
    assert lines.warmup_ns > 0
    assert lines.idle_ns >= 3 * 20_000_000 * 0.9
    assert lines.host_gap_ns > 0
    assert lines.recompute_ns > 0
    assert lines.unattributed_ns == 0
    assert abs(lines.unexplained_ns) <= 0.005 * lines.wall_ns


def test_an_idle_engine_tells_of_its_idleness(llama, make_engine, monkeypatch):
    engine = make_engine(llama.path)
    serve(engine, 1)
    engine.take_steps()
    assert engine.take_steps() == []
    meter: StepMeter = engine._meter
    monkeypatch.setattr(meter._book, "now_ns", lambda: time.monotonic_ns() + 3_000_000_000)
    (idle,) = engine.take_steps()
    assert idle.kind == "idle"
    assert idle.busy_ns + idle.gap_ns >= 2_900_000_000


def test_a_gap_while_something_could_run_is_the_hosts(llama, make_engine):
    engine = make_engine(llama.path)
    engine.submit(request(1, [5] * 20, max_tokens=6))
    engine.step()
    engine.step()
    time.sleep(0.03)  # the host dawdles
    engine.step()
    run(engine, [])
    third = steps_of(engine.take_steps())[2]
    assert third.gap_cause == "host"
    assert third.gap_ns >= 25_000_000


def test_blocks_are_charged_for_while_they_are_held_and_no_longer(llama, make_engine):
    engine = make_engine(llama.path)
    run(engine, [request(1, [5] * 20)])
    time.sleep(0.2)  # nobody holds anything
    began = time.monotonic()
    answers = run(engine, [request(2, [6] * 20, max_tokens=10)])
    gpu = answers[(2).to_bytes(16, "big")].account.gpu
    assert gpu is not None
    assert 0 < gpu.kv_block_seconds <= 2 * (time.monotonic() - began)


def test_without_metering_nothing_is_recorded(llama, make_engine):
    engine = make_engine(llama.path, metering=False)
    answers = serve(engine, 2)
    assert engine.take_steps() == []
    assert all(answer.account.gpu is None for answer in answers.values())


def replay(records: list[KvRecord]) -> set[int]:
    held: set[int] = set()
    for record in records:
        if record.event == "cleared":
            held.clear()
        elif record.event == "stored":
            assert record.block_size == 16
            assert not held & set(record.block_hashes)
            assert record.parent_hash is None or record.parent_hash not in record.block_hashes
            held |= set(record.block_hashes)
        else:
            assert set(record.block_hashes) <= held
            held -= set(record.block_hashes)
    return held


@pytest.mark.parametrize("blocks", [32, 128])
def test_the_events_replay_to_what_the_cache_holds(llama, make_engine, blocks):
    engine = make_engine(llama.path, kv_blocks=blocks, max_batch_tokens=24)
    events: list[KvRecord] = []
    for _ in range(2):
        serve(engine, 14, cache_salt="salt")
        events += engine.take_kv_events()
    assert [event.sequence for event in events] == list(range(len(events)))
    held = {int.from_bytes(key[:8], "little") for key in engine.blocks.cached_keys()}
    assert replay(events) == held
    assert held
    if blocks == 32:
        assert any(event.event == "removed" for event in events)
    engine.blocks.clear()
    assert replay(events + engine.take_kv_events()) == set()
    assert {event.tenant for event in events if event.event == "stored"} == {"tenant0", "tenant1", "tenant2"}


def test_prefix_lookups_and_hits_are_counted_in_tokens(llama, make_engine):
    engine = make_engine(llama.path)
    prompt = random_ids(random.Random(5), 48)
    for number, (queried, hit) in enumerate([(48, 0), (96, 32)]):
        run(engine, [request(number, prompt, max_tokens=2)])
        stats = engine.stats()
        assert (stats["prefix_cache_queries"], stats["prefix_cache_hits"]) == (queried, hit)
