"""From events on a GPU to step records and accounts: exact sums, nothing waited for, losses that show."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from algorithms.gpu_time.ledger import ledger_lines
from algorithms.gpu_time.step_model import DECODE, PREFILL
from backends.engine.vllm_engine.metering import frame_sender
from backends.engine.vllm_engine.metering.meter import MeterOptions, VllmMeter
from backends.engine.vllm_engine.step_metering import Account
from contracts.errors import ConfigurationError
from tests.backends.engine.vllm_engine.metering.conftest import FACTS, first_of, name_of, request_id
from tests.backends.engine.vllm_engine.metering.fake_gpu import batch


def serve(rig, number, prompt=8, decodes=3, tenant="t"):
    """Serve one request alone to its end."""
    rig.meter.begin(request_id(number), tenant, prompt)
    rig.launch(batch([first_of(number, prompt)], counts={name_of(number): prompt}))
    rig.wait()
    for place in range(decodes):
        rig.launch(batch(running=[(name_of(number), prompt + place)], counts={name_of(number): 1}))
        rig.wait()
    rig.finish(name_of(number))


def test_a_step_becomes_a_record_whose_parts_sum_to_it(rig):
    rig.meter.queue(rig.now_ns, runnable=True)
    for number, tenant in ((1, "a"), (2, "b")):
        rig.meter.begin(request_id(number), tenant, 8)
    order = batch([first_of(1, 8), first_of(2, 700)], counts={name_of(1): 8, name_of(2): 700})
    rig.launch(order, busy_ns=1_234_567)
    rig.wait()
    (record,) = rig.records()
    assert (record.busy_ns, record.forward_ns, sum(record.gpu_ns)) == (1_234_567, 617_283, 1_234_567)
    assert record.request_ids == [request_id(1), request_id(2)]
    assert (record.tenants, record.scheduled, record.phases) == (["a", "b"], [8, 700], [PREFILL, PREFILL])
    assert (record.sequence, record.method, record.running, record.waiting) == (1, "steptime-as/1", 2, None)


def test_an_account_is_settled_once_its_last_step_is_in(rig):
    rig.meter.begin(request_id(1), "a", 8)
    rig.launch(batch([first_of(1, 8)], counts={name_of(1): 8}))
    rig.meter.collect()
    rig.wait()
    rig.meter.collect()
    assert not rig.meter.is_settled(request_id(1))  # another step may come
    rig.launch(batch(running=[(name_of(1), 8)], counts={name_of(1): 1}))
    rig.finish(name_of(1))
    rig.meter.collect()
    assert not rig.meter.is_settled(request_id(1))  # its last step still runs
    rig.wait()
    rig.meter.collect()
    assert rig.meter.is_settled(request_id(1))
    account = rig.meter.end(request_id(1), is_aborted=False)
    assert (account.gpu.prefill_ns, account.gpu.decode_ns, account.computed_tokens) == (1_000_000, 1_000_000, 9)
    assert account.gpu.kv_block_seconds == pytest.approx(2e-3)
    assert (account.recompute_tokens, account.overrun_tokens, account.wasted_tokens) == (0, 0, 0)


def test_a_request_that_was_in_no_step_has_an_account_of_nothing(rig):
    rig.meter.begin(request_id(1), "a", 8)
    assert rig.meter.is_settled(request_id(1))
    assert rig.meter.end(request_id(1), is_aborted=True) == Account()
    assert rig.meter.end(request_id(2), is_aborted=True) == Account()


def test_all_choices_of_a_request_are_its_own(rig):
    rig.meter.begin(request_id(1), "a", 8)
    names = [name_of(1, choice) for choice in (0, 1)]
    new = [first_of(1, 8), first_of(1, 8)]
    for one, name in zip(new, names, strict=True):
        one.req_id = name
    rig.launch(batch(new, counts=dict.fromkeys(names, 8)))
    rig.wait()
    rig.finish(names[0])
    rig.meter.collect()
    assert not rig.meter.is_settled(request_id(1))
    rig.finish(names[1])
    rig.meter.collect()
    assert rig.meter.is_settled(request_id(1))
    assert rig.meter.end(request_id(1), is_aborted=False).gpu.prefill_ns == 1_000_000


def test_overlapping_steps_lie_end_to_end_and_an_overrun_is_wasted(make_rig):
    rig = make_rig(depth=2)
    rig.meter.queue(rig.now_ns, runnable=True)
    for number in (1, 2):
        rig.meter.begin(request_id(number), "a", 8)
    rig.launch(batch([first_of(1, 8), first_of(2, 8)], counts={name_of(1): 8, name_of(2): 8}))
    both = batch(running=[(name_of(1), 8), (name_of(2), 8)], counts={name_of(1): 1, name_of(2): 1})
    rig.launch(both)
    rig.launch(batch(running=[(name_of(1), 9)], counts={name_of(1): 1}, finished=[name_of(2)]))
    rig.wait()
    first, second, third = rig.records()
    assert second.started_at_ns == first.started_at_ns + first.busy_ns
    assert (second.gap_ns, third.gap_ns) == (0, 0)
    assert second.aborted == [False, True] and first.aborted == third.aborted == []
    assert rig.meter.is_settled(request_id(2))
    account = rig.meter.end(request_id(2), is_aborted=False)
    assert (account.overrun_tokens, account.gpu.wasted_ns, account.gpu.decode_ns) == (1, second.gpu_ns[1], 0)


def test_a_step_after_the_account_is_unwanted_and_on_the_record_alone(rig):
    rig.meter.begin(request_id(1), "a", 8)
    rig.launch(batch([first_of(1, 8)], counts={name_of(1): 8}))
    rig.wait()
    rig.meter.collect()
    account = rig.meter.end(request_id(1), is_aborted=True)
    rig.launch(batch(running=[(name_of(1), 8)], counts={name_of(1): 1}))
    rig.wait()
    first, late = rig.records()
    assert (first.aborted, late.aborted) == ([], [True])
    assert account.gpu.wasted_ns == 0


def test_accepted_drafts_are_told_and_rejected_ones_are_waste(rig):
    rig.meter.begin(request_id(1), "a", 8)
    rig.launch(batch([first_of(1, 8)], counts={name_of(1): 8}))
    rig.wait()
    order = batch(running=[(name_of(1), 8)], counts={name_of(1): 4}, drafts={name_of(1): [5, 6, 7]})
    (step,) = rig.launch(order)
    step.awaits_output = True
    rig.wait()
    assert len(rig.records()) == 1  # what came of the drafts is not known yet
    step.note_output(type("Output", (), {"req_ids": [name_of(1)], "sampled_token_ids": [[5, 9]]}))
    rig.wait()
    (record,) = rig.records()
    assert (record.drafted, record.accepted, record.scheduled) == ([3], [1], [4])
    rig.finish(name_of(1))
    rig.meter.collect()
    assert rig.meter.end(request_id(1), is_aborted=False).wasted_tokens == 2


def test_recomputation_has_its_own_line(rig):
    rig.meter.begin(request_id(1), "a", 8)
    rig.launch(batch([first_of(1, 8)], counts={name_of(1): 8}))
    rig.launch(batch([first_of(1, 8, prefill=9)], counts={name_of(1): 9}), busy_ns=900_000)
    rig.wait()
    rig.meter.collect()
    account = rig.meter.end(request_id(1), is_aborted=False)
    assert (account.recompute_tokens, account.gpu.recompute_ns) == (8, 800_000)


def test_a_dummy_batch_charges_nobody(rig):
    rig.meter.queue(rig.now_ns, runnable=True)
    rig.launch(None, busy_ns=500_000)
    rig.wait()
    (record,) = rig.records()
    assert (record.busy_ns, record.method, record.gpu_ns, record.kind) == (500_000, "", [], "step")


def test_the_hosts_own_warm_up_is_no_step(rig):
    rig.meter.lifecycle("warmup")
    serve(rig, 0)
    rig.meter.collect()
    rig.meter.end(request_id(0), is_aborted=False)
    rig.meter.lifecycle(None)
    rig.meter.queue(rig.now_ns, runnable=False)
    rig.pass_time(2_000_000_000)
    records = rig.records(idle=True)
    assert [one.kind for one in records] == ["warmup", "idle"]
    assert rig.meter.facts()["steps"] == 0


def test_the_ledger_closes_over_load_service_idleness_and_sleep(rig):
    began = rig.now_ns
    rig.meter.lifecycle("load")
    rig.pass_time(5_000_000)
    rig.workers[0].mark("warmup")
    rig.pass_time(3_000_000)
    rig.meter.lifecycle(None)
    rig.meter.queue(rig.now_ns, runnable=True)
    serve(rig, 7)
    rig.meter.collect()
    rig.meter.end(request_id(7), is_aborted=False)
    rig.meter.queue(rig.now_ns, runnable=False)
    rig.pass_time(7_000_000)
    rig.workers[0].mark("sleep")
    rig.pass_time(11_000_000)
    rig.workers[0].mark("")
    rig.pass_time(1_500_000_000)
    rig.meter.collect()
    lines = ledger_lines(rig.records(idle=True), began, rig.now_ns)["e"]
    assert (lines.load_ns, lines.warmup_ns, lines.sleep_ns) == (5_000_000, 3_000_000, 11_000_000)
    assert (lines.attributed_ns, lines.idle_ns) == (4_000_000, 1_507_000_000)
    assert lines.unexplained_ns == 0


def test_idleness_is_not_told_while_a_step_may_run(rig):
    rig.meter.queue(rig.now_ns, runnable=False)
    rig.meter.begin(request_id(9), "a", 8)
    rig.launch(batch([first_of(9, 8)], counts={name_of(9): 8}), busy_ns=3_000_000_000)
    rig.pass_time(2_000_000_000)
    rig.workers[0].settle()
    rig.meter.end(request_id(9), is_aborted=True)
    assert rig.records(idle=True) == []


def test_a_lost_step_shows_as_a_hole_and_is_no_idleness(rig, monkeypatch):
    rig.meter.queue(rig.now_ns, runnable=True)
    began = rig.now_ns
    rig.meter.begin(request_id(1), "a", 8)
    rig.launch(batch([first_of(1, 8)], counts={name_of(1): 8}))
    rig.wait()
    rig.launch(batch(running=[(name_of(1), 8)], counts={name_of(1): 1}))
    rig.gpus[0].catch_up()
    monkeypatch.setattr(rig.senders[0], "_max_steps", 0)  # dropped in the worker
    rig.workers[0].settle()
    monkeypatch.setattr(rig.senders[0], "_max_steps", 100)
    rig.launch(batch(running=[(name_of(1), 9)], counts={name_of(1): 1}))
    rig.wait()
    first, lost, third = rig.records()
    assert [one.kind for one in (first, lost, third)] == ["step", "lost", "step"]
    assert (first.sequence, lost.sequence, third.sequence) == (1, 2, 3)
    lines = ledger_lines([first, lost, third], began, rig.now_ns)["e"]
    assert (lines.attributed_ns, lines.unexplained_ns, lines.idle_ns) == (2_000_000, 1_000_000, 0)
    facts = rig.meter.facts()
    assert (facts["meter_lost_steps"], facts["meter_dropped_steps"]) == (1, 1)


def test_several_lost_steps_leave_a_hole_in_the_sequence(rig, monkeypatch):
    rig.meter.queue(rig.now_ns, runnable=True)
    serve(rig, 2, decodes=0)
    monkeypatch.setattr(rig.senders[0], "_max_steps", 0)
    serve(rig, 3, decodes=2)
    monkeypatch.setattr(rig.senders[0], "_max_steps", 100)
    serve(rig, 4, decodes=0)
    records = rig.records()
    assert [(one.kind, one.sequence) for one in records] == [("step", 1), ("lost", 4), ("step", 5)]


def test_nothing_is_lost_while_the_host_is_busy(rig, monkeypatch):
    """The socket takes only so much; what it does not take is kept in order."""
    monkeypatch.setattr(frame_sender, "_STEPS_A_FRAME", 1)
    rig.meter.queue(rig.now_ns, runnable=True)
    serve(rig, 5, decodes=3000)
    rig.workers[0].settle()
    assert rig.senders[0].has_unsent
    records = []
    for _ in range(3000):
        records += rig.records()
        rig.workers[0].settle()
        if not rig.senders[0].has_unsent:
            break
    records += rig.records()
    assert [one.sequence for one in records] == list(range(1, 3002))
    assert rig.meter.facts()["meter_lost_steps"] == 0
    assert rig.meter.is_settled(request_id(5))


def test_ranks_are_joined_and_their_skew_told(make_rig):
    rig = make_rig(ranks=2)
    rig.meter.queue(rig.now_ns, runnable=True)
    rig.meter.begin(request_id(1), "a", 8)
    rig.launch(batch([first_of(1, 8)], counts={name_of(1): 8}), skew_ns=40_000)
    rig.gpus[0].catch_up()
    rig.workers[0].settle()
    assert rig.records() == []  # the other rank's time is not in
    rig.gpus[1].catch_up()
    rig.workers[1].settle()
    (record,) = rig.records()
    assert (record.busy_ns, record.rank_skew_ns, record.ranks) == (1_000_000, 40_000, 2)


@pytest.mark.parametrize(("steps", "written"), [(63, 0), (64, 0), (65, 1)])
def test_a_silent_rank_holds_records_up_for_64_steps_at_most(make_rig, steps, written):
    rig = make_rig(ranks=2)
    rig.meter.queue(rig.now_ns, runnable=True)
    rig.meter.begin(request_id(1), "a", 8)
    rig.launch(batch([first_of(1, 8)], counts={name_of(1): 8}))
    rig.gpus[0].catch_up()
    rig.workers[0].settle()
    for place in range(steps - 1):
        rig.launch(batch(running=[(name_of(1), 8 + place)], counts={name_of(1): 1}))
        rig.gpus[0].catch_up()
        rig.workers[0].settle()
        rig.meter.collect()
    records = rig.records()
    assert len(records) == written
    assert all(one.rank_skew_ns is None for one in records)


def test_a_server_that_is_not_ours_is_metered_by_its_own_names(rig):
    rig.meter.queue(rig.now_ns, runnable=True)
    new = first_of(1, 8, extra={"tollkeeper_tenant": "acme"})
    new.req_id = "chatcmpl-abc-0123abcd"
    rig.launch(batch([new], counts={new.req_id: 8}))
    rig.wait()
    rig.finish(new.req_id)
    (record,) = rig.records()
    assert record.tenants == ["acme"]
    assert len(record.request_ids[0]) == 16
    assert rig.meter.is_quiet


def test_an_unreadable_frame_is_counted_and_ends_nothing(rig):
    rig.senders[0]._socket.sendto(b"\xc1", rig.senders[0]._path)
    rig.meter.queue(rig.now_ns, runnable=True)
    serve(rig, 2)
    assert len(rig.records()) == 4
    assert rig.meter.facts()["meter_unreadable_frames"] == 1


def test_a_path_too_long_for_a_socket_is_named(tmp_path, rig):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    with pytest.raises(ConfigurationError, match="107 bytes"):
        VllmMeter(rig.book, MeterOptions("m", directory=deep))
    assert list(deep.iterdir()) == []


def test_closing_leaves_no_socket_behind(tmp_path, rig):
    folder = tmp_path / "here"
    folder.mkdir()
    meter = VllmMeter(rig.book, MeterOptions("m", directory=folder))
    assert len(list(folder.iterdir())) == 1
    meter.close()
    meter.close()
    assert list(folder.iterdir()) == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.integers(0, 6), st.integers(1, 5_000_000), st.integers(0, 3_000_000)),
        min_size=1,
        max_size=6,
    )
)
def test_any_service_closes_to_the_nanosecond(make_rig, requests):
    """Whatever runs, parts sum to steps, steps and gaps to the wall, and accounts to what their rows were charged."""
    rig = make_rig(depth=2)
    began = rig.now_ns
    rig.meter.queue(began, runnable=True)
    charged = {}
    for number, (prompt, decodes, busy_ns, pause_ns) in enumerate(requests, 2):
        rig.meter.begin(request_id(number), str(number % 2), prompt)
        rig.launch(batch([first_of(number, prompt)], counts={name_of(number): prompt}), busy_ns)
        for place in range(decodes):
            rig.launch(batch(running=[(name_of(number), prompt + place)], counts={name_of(number): 1}), busy_ns)
        rig.pass_time(pause_ns)
        rig.wait()
        rig.finish()
        rig.finish(name_of(number))
        rig.meter.collect()
        assert rig.meter.is_settled(request_id(number))
        charged[request_id(number)] = rig.meter.end(request_id(number), is_aborted=False)
    records = rig.meter.take(idle=True, facts=FACTS)
    steps = [one for one in records if one.kind == "step"]
    assert [one.sequence for one in records] == list(range(1, len(records) + 1))
    by_request: dict[bytes, int] = {}
    for one in steps:
        assert sum(one.gpu_ns) == one.busy_ns
        for who, part in zip(one.request_ids, one.gpu_ns, strict=True):
            by_request[who] = by_request.get(who, 0) + part
    assert by_request == {who: sum(msgspec.structs.astuple(one.gpu)[:4]) for who, one in charged.items()}
    ended = max(one.started_at_ns + one.busy_ns for one in steps)
    assert ledger_lines(records, began, ended)["e"].unexplained_ns == 0
    assert DECODE in {phase for one in steps for phase in one.phases} or all(one[1] == 0 for one in requests)
