"""When a worker reads and tells: at once where someone waits for it, else rarely; and never by waiting itself."""

import pytest

from backends.engine.vllm_engine.metering.capability import missing_fields, missing_hooks, missing_methods
from backends.engine.vllm_engine.metering.frames import MeterFrame, decode_frame
from backends.engine.vllm_engine.metering.sequence_names import request_id_of
from contracts.errors import InvalidRecord
from tests.backends.engine.vllm_engine.metering.conftest import first_of, name_of, request_id
from tests.backends.engine.vllm_engine.metering.fake_gpu import batch


def run(rig, order, busy_ns=1_000):
    """Launch a step as the worker does, its output there at once."""
    for gpu, worker in zip(rig.gpus, rig.workers, strict=True):
        worker.begin(order)
        gpu.run(busy_ns)
        worker.launched()
        worker.end()
        gpu.catch_up()


def decode(rig, place):
    """Run a steady step."""
    run(rig, batch(running=[(name_of(1), 8 + place)], counts={name_of(1): 1}))


@pytest.fixture
def steady(rig):
    rig.meter.queue(rig.now_ns, runnable=True)
    rig.meter.begin(request_id(1), "a", 8)
    rig.launch(batch([first_of(1, 8)], counts={name_of(1): 8}))
    rig.wait()
    assert len(rig.records()) == 1
    return rig


@pytest.mark.parametrize(("steps", "told"), [(32, 0), (33, 32), (34, 32)])
def test_steady_steps_are_told_32_at_a_time_while_the_next_runs(steady, steps, told):
    for place in range(steps):
        decode(steady, place)
    assert len(steady.records()) == told


@pytest.mark.parametrize(("later_ns", "told"), [(19_999_999, 0), (20_000_000, 1)])
def test_steady_steps_are_told_after_20_ms(steady, later_ns, told):
    settled_ns = steady.now_ns
    decode(steady, 0)
    steady.pass_time(settled_ns + later_ns - steady.now_ns)
    decode(steady, 1)
    assert len(steady.records()) == told


def test_somebody_new_is_told_at_once(steady):
    decode(steady, 0)
    steady.meter.begin(request_id(2), "b", 8)
    order = batch([first_of(2, 8)], [(name_of(1), 9)], {name_of(2): 8, name_of(1): 1})
    run(steady, order)
    assert [one.running for one in steady.records()] == [1]
    steady.workers[0].settle()
    assert [one.running for one in steady.records()] == [2]


def test_what_is_told_of_steady_steps_is_where_they_had_come_to(steady):
    for place in range(5):
        decode(steady, place)
    steady.workers[0].settle()
    for place in range(5, 9):
        decode(steady, place)
    steady.workers[0].settle()
    records = steady.records()
    assert [one.context for one in records] == [[8 + place] for place in range(9)]
    assert all(one.request_ids == records[0].request_ids and one.phases == [1] for one in records)
    assert all(sum(one.gpu_ns) == one.busy_ns for one in records)


def test_after_a_step_that_was_never_told_the_rows_are_told_anew(steady):
    decode(steady, 0)
    decode(steady, 1)
    steady.workers[0].settle()
    for place in range(2, 132):  # more than there are events for
        steady.launch(batch(running=[(name_of(1), 8 + place)], counts={name_of(1): 1}), busy_ns=1_000)
    steady.wait()
    decode(steady, 132)
    steady.workers[0].settle()
    told = [one.context for one in steady.records() if one.kind == "step"]
    assert told == [[8 + place] for place in (*range(129), 132)]


def test_after_steps_that_a_host_behind_never_got_the_rows_are_told_anew(steady, monkeypatch):
    sender = steady.senders[0]
    with monkeypatch.context() as behind:
        behind.setattr(sender, "_max_steps", 8)
        behind.setattr(sender, "_path", "/nowhere")
        for place in range(40):
            decode(steady, place)
        steady.workers[0].settle()
    assert sender.dropped == 32
    decode(steady, 40)
    steady.workers[0].settle()
    records = steady.records()
    assert [one.kind for one in records] == ["lost"] + ["step"] * 9
    assert [one.context for one in records[1:]] == [[8 + place] for place in range(32, 41)]


def test_every_256th_step_is_told_whole_whatever_became_of_those_before(steady, monkeypatch):
    sender = steady.senders[0]
    with monkeypatch.context() as behind:
        behind.setattr(sender, "_path", "/nowhere")
        for place in range(520):
            decode(steady, place)
        steady.workers[0].settle()
        whole = {one.number for one in sender._steps if not one.again}
    assert whole == {2, 3, 256, 512}


def test_every_rank_tells_in_time_though_only_one_is_asked_for_outputs(make_rig):
    rig = make_rig(ranks=2)
    rig.meter.queue(rig.now_ns, runnable=True)
    rig.meter.begin(request_id(1), "a", 8)
    run(rig, batch([first_of(1, 8)], counts={name_of(1): 8}))
    for place in range(300):
        decode(rig, place)
        rig.meter.collect()
    rig.wait()
    records = rig.records()
    assert len(records) == 301 and all(one.rank_skew_ns is not None for one in records)


def test_a_step_without_events_left_is_lost_and_shows(steady):
    for place in range(200):
        steady.launch(batch(running=[(name_of(1), 8 + place)], counts={name_of(1): 1}), busy_ns=1_000)
    steady.wait()
    steady.launch(batch(running=[(name_of(1), 208)], counts={name_of(1): 1}))
    steady.wait()
    records = steady.records()
    assert [one.kind for one in records[-2:]] == ["lost", "step"]
    assert steady.meter.facts()["meter_lost_steps"] == 200 - 127  # one of the pool's 128 marks where the last ended


def test_a_step_that_failed_to_launch_leaves_nothing_behind(steady):
    for _ in range(300):
        steady.workers[0].begin(batch(running=[(name_of(1), 8)], counts={name_of(1): 1}))
        steady.workers[0].cancel()
    decode(steady, 0)
    steady.workers[0].settle()
    assert [one.sequence for one in steady.records()] == [2]


def test_sampling_outside_of_a_step_is_nobodys(steady):
    assert steady.workers[0].end() is None
    steady.workers[0].forward_done()


@pytest.mark.parametrize("name", ["0" * 30 + "7f", "0" * 30 + "7f-0123abcd", "3_" + "0" * 30 + "7f-0123abcd"])
def test_our_names_are_ids(name):
    assert request_id_of(name) == bytes(15) + b"\x7f"


def test_other_names_become_ids_that_their_choices_share():
    assert len(request_id_of("chatcmpl-9")) == 16
    assert request_id_of("chatcmpl-9-0123abcd") == request_id_of("1_chatcmpl-9-89abcdef") == request_id_of("chatcmpl-9")
    assert request_id_of("chatcmpl-9") != request_id_of("chatcmpl-8")


@pytest.mark.parametrize("packed", [b"", b"\xc1", b"\x91\xa1x", b"\x90"])
def test_what_is_no_frame_is_refused(packed):
    with pytest.raises(InvalidRecord, match="meter frame"):
        decode_frame(packed)


def test_what_a_version_lacks_is_named():
    class Worker:
        def execute_model(self, batch):
            """Accept a batch, by another name."""

    assert missing_methods(Worker, {"execute_model": ("scheduler_output",), "sample_tokens": ()}) == [
        "Worker.execute_model(scheduler_output)",
        "Worker.sample_tokens",
    ]
    assert missing_fields(MeterFrame, ("rank",)) == ["MeterFrame.rank"]  # no dataclass: nothing is known of it


def test_without_vllm_it_is_vllm_that_is_missing():
    pytest.importorskip("backends.engine.vllm_engine.metering.capability")
    missing = missing_hooks()
    assert missing == [] or missing == ["vllm"]
