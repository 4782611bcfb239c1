"""Step records: none lost while someone takes them, none twice, and a loss is said to be one."""

import asyncio
import time
from collections import defaultdict
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.gpu_time.ledger import ledger_lines
from backends.engine.step_outbox import FRAME_BYTES, IN_FLIGHT_BYTES, StepOutbox
from contracts.engine.wire import Delta, Hello, KvEvents, Steps, StepsAck
from contracts.recording.records import AttemptRecord, StepRecord, decode_record, encode_record
from tests.backends.engine.host_client import HostClient, StartHost, make_submit

TOKENS = list(range(2, 40))


def record(sequence: int, engine: str = "e", **fields: object) -> StepRecord:
    return StepRecord(engine=engine, sequence=sequence, started_at_ns=sequence * 100, busy_ns=90, **fields)  # type: ignore[arg-type]  # the test's


SIZE = len(encode_record(record(1000)))


def numbered(frames: list[Steps]) -> dict[int, StepRecord]:
    found: dict[int, StepRecord] = {}
    for steps in frames:
        first = steps.last_sequence - len(steps.records) + 1
        for place, packed in enumerate(steps.records):
            decoded = decode_record(packed)
            assert isinstance(decoded, StepRecord)
            found[first + place] = decoded
    return found


@given(st.lists(st.one_of(st.integers(1, 30), st.sampled_from(["send", "ack", "rewind"])), max_size=40))
def test_whatever_happens_every_record_arrives_and_none_after_it_was_acknowledged(script: list[int | str]) -> None:
    outbox = StepOutbox(1 << 20)
    arrived: dict[int, StepRecord] = {}
    made = acknowledged = reached = 0  # the last number that the present gateway was sent
    for action in [*script, "rewind", "send"]:
        if isinstance(action, int):
            outbox.add(record(made + place + 1) for place in range(action))
            made += action
        elif action == "send":
            new = numbered(outbox.next_frames())
            assert all(number > acknowledged for number in new)
            arrived |= new
            reached = max(new, default=reached)
        elif action == "ack":
            acknowledged = reached
            outbox.acknowledge(acknowledged)
        elif action == "rewind":
            outbox.rewind()
            reached = acknowledged
    assert sorted(arrived) == list(range(1, made + 1))
    assert [arrived[number].sequence for number in sorted(arrived)] == list(range(1, made + 1))
    assert outbox.pending == made - acknowledged
    assert outbox.lost == 0


def test_an_acknowledgement_of_what_was_not_sent_forgets_nothing() -> None:
    outbox = StepOutbox(1 << 20)
    outbox.add([record(1), record(2)])
    outbox.acknowledge(2)
    assert outbox.pending == 2
    assert list(numbered(outbox.next_frames())) == [1, 2]


def test_a_gateway_that_does_not_acknowledge_is_sent_only_so_much() -> None:
    outbox = StepOutbox(64 << 20)
    count = 2 * IN_FLIGHT_BYTES // SIZE
    outbox.add(record(place) for place in range(count))
    frames = outbox.next_frames()
    sent = sum(len(packed) for steps in frames for packed in steps.records)
    assert IN_FLIGHT_BYTES <= sent <= IN_FLIGHT_BYTES + FRAME_BYTES + SIZE
    assert outbox.next_frames() == []
    outbox.acknowledge(frames[0].last_sequence)
    assert outbox.next_frames()[0].last_sequence > frames[-1].last_sequence


@pytest.mark.parametrize(("count", "is_over"), [(99, False), (100, False), (101, True)])
def test_beyond_its_bound_the_outbox_says_what_was_lost(count: int, is_over: bool) -> None:
    outbox = StepOutbox(100 * SIZE)
    outbox.add(record(1000 + place) for place in range(count))
    records = list(numbered(outbox.next_frames()).values())
    assert (outbox.lost > 0) == is_over
    if not is_over:
        assert [one.kind for one in records] == ["step"] * count
        return
    lost, *kept = records
    assert lost.kind == "lost"
    assert lost.sequence == kept[0].sequence - 1 == 1000 + outbox.lost - 1
    assert (lost.started_at_ns, lost.started_at_ns + lost.busy_ns) == (1000 * 100, lost.sequence * 100 + 90)
    assert outbox.pending_bytes <= 100 * SIZE


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=50, max_size=400))
def test_losses_are_told_for_each_engine_and_only_once(engines: list[str]) -> None:
    outbox = StepOutbox(40 * SIZE)
    counts: dict[str, int] = defaultdict(int)
    for engine in engines:
        counts[engine] += 1
        outbox.add([record(counts[engine], engine)])
    found = numbered(outbox.next_frames())
    assert sorted(found) == list(range(min(found), len(engines) + 1))
    for engine, count in counts.items():
        mine = [one for one in found.values() if one.engine == engine]
        assert sum(one.kind == "lost" for one in mine) <= 1
        assert [one.sequence for one in mine] == list(range(mine[0].sequence, count + 1))
        assert mine[0].kind == "lost" or mine[0].sequence == 1
    live = sum(one.kind == "step" for one in found.values())
    assert outbox.lost == len(engines) - live


def test_a_loss_of_what_was_sent_is_told_to_the_next_gateway_only() -> None:
    outbox = StepOutbox(100 * SIZE)
    outbox.add(record(1000 + place) for place in range(100))
    outbox.next_frames()
    outbox.add([record(2000)])
    assert [one.kind for one in numbered(outbox.next_frames()).values()] == ["step"]
    outbox.rewind()
    kinds = [one.kind for one in numbered(outbox.next_frames()).values()]
    assert kinds[0] == "lost" and set(kinds[1:]) == {"step"}


async def run_some(client: HostClient, first: int, count: int = 3) -> None:
    for number in range(first, first + count):
        await client.run(make_submit(number, TOKENS))


async def test_a_gateway_that_comes_back_gets_exactly_what_it_did_not_acknowledge(start_host: StartHost) -> None:
    running = await start_host("tiny")
    first = await (await running.client("one", acks=False)).ready()
    await run_some(first, 1)
    half = first.of(Steps)[len(first.of(Steps)) // 2].last_sequence
    first.send(StepsAck(sequence=half))
    await run_some(first, 10)
    await first.close()
    await until(lambda: not running.host.connections)
    second = await running.client("two")
    await run_some(second, 20)
    await until(lambda: running.host.outbox.pending == 0)
    before = {number: one for number, one in first.step_records() if number <= half}
    after = second.step_records()
    numbers = [*before, *(number for number, _ in after)]
    assert numbers == list(range(1, len(numbers) + 1))
    records = [*before.values(), *(one for _, one in after)]
    assert [one.sequence for one in records if isinstance(one, StepRecord)] == list(range(1, len(records) + 1))


async def test_records_made_while_nobody_listens_are_kept(start_host: StartHost) -> None:
    running = await start_host("tiny")
    deaf = await (await running.client("deaf", wants_steps=False)).ready()
    await run_some(deaf, 1)
    assert not deaf.of(Steps)
    pending = running.host.outbox.pending
    assert pending > 0
    client = await running.client("hearing")
    await client.until(lambda: len(client.step_records()) >= pending)
    assert client.step_records()[0][0] == 1


async def test_the_longest_attached_gateway_takes_the_records_until_it_leaves(start_host: StartHost) -> None:
    running = await start_host("tiny")
    first, second, third = [await running.client(name) for name in ("first", "second", "third")]
    await third.ready()
    await run_some(third, 1)
    assert first.of(Steps) and not second.of(Steps) and not third.of(Steps)
    await first.close()
    await until(lambda: running.host.connections == 2)
    await run_some(third, 10)
    await second.until(lambda: bool(second.of(Steps)))
    assert not third.of(Steps)
    assert second.step_records()[0][0] == first.step_records()[-1][0] + 1


async def test_an_acknowledgement_of_another_gateway_counts_for_nothing(start_host: StartHost) -> None:
    running = await start_host("tiny")
    first = await (await running.client("first", acks=False)).ready()
    second = await running.client("second")
    await run_some(first, 1)
    pending = running.host.outbox.pending
    second.send(StepsAck(sequence=10**9))
    await second.call("health")
    assert running.host.outbox.pending >= pending > 0


@pytest.mark.alone
async def test_every_moment_of_an_engine_is_on_a_line_of_the_ledger(start_host: StartHost) -> None:
    running = await start_host("tiny")
    client = await (await running.client()).ready()
    began = time.time_ns()
    await run_some(client, 1, 8)
    records = [one for _, one in client.step_records() if isinstance(one, StepRecord)]
    assert {"load", "warmup", "step"} <= {one.kind for one in records}
    start = min(one.started_at_ns - one.gap_ns for one in records)
    end = max(one.started_at_ns + one.busy_ns for one in records)
    (lines,) = ledger_lines(records, start, end).values()
    assert abs(lines.unexplained_ns) <= 0.005 * lines.wall_ns
    assert lines.load_ns > 0 and lines.attributed_ns > 0
    assert start < began < end
    idle_since = len(records)
    await client.until(lambda: "idle" in [getattr(one, "kind", "") for _, one in client.step_records()[idle_since:]])


async def test_request_times_are_the_sum_of_their_step_parts(start_host: StartHost) -> None:
    running = await start_host("tiny")
    client = await (await running.client()).ready()
    submits = [make_submit(number, TOKENS, max_tokens=10 * number) for number in (1, 2, 3)]
    for submit in submits:
        client.send(submit)
    ends = {submit.request_id: await client.end(submit.request_id) for submit in submits}
    await until(lambda: running.host.outbox.pending == 0)
    charged: dict[bytes, int] = defaultdict(int)
    for _, one in client.step_records():
        assert isinstance(one, StepRecord)
        assert one.kind != "step" or sum(one.gpu_ns) == one.busy_ns
        for request_id, part in zip(one.request_ids, one.gpu_ns, strict=True):
            charged[request_id] += part
    for request_id, end in ends.items():
        assert end.gpu is not None
        assert end.gpu.prefill_ns + end.gpu.decode_ns + end.gpu.recompute_ns + end.gpu.wasted_ns == charged[request_id]


async def test_kv_events_go_to_all_who_want_them(start_host: StartHost) -> None:
    running = await start_host("tiny")
    first, second = await running.client("first"), await running.client("second", wants_steps=False)
    third = await running.client("third", wants_kv=False)
    await third.ready()
    await run_some(third, 1, 1)
    for client in (first, second):
        await until(partial(client.of, KvEvents))
    assert not third.of(KvEvents)
    await until(lambda: len(first.of(KvEvents)) == len(second.of(KvEvents)))
    assert first.of(KvEvents) == second.of(KvEvents)


async def test_two_models_number_their_steps_apart(start_host: StartHost) -> None:
    running = await start_host("tiny", "scripted")
    client = await (await (await running.client()).ready()).ready("scripted")
    await asyncio.gather(run_some(client, 1), client.run(make_submit(9, TOKENS, model="scripted")))
    await until(lambda: running.host.outbox.pending == 0)
    sequences: dict[str, list[int]] = defaultdict(list)
    for _, one in client.step_records():
        assert isinstance(one, StepRecord)
        sequences[one.engine].append(one.sequence)
    assert len(sequences) == 2
    assert all(engine.startswith(client.of(Hello)[0].engine + "/") for engine in sequences)
    assert all(found == list(range(1, len(found) + 1)) for found in sequences.values())
    assert client.of(Delta)


async def until(condition, seconds: float = 120.0) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)


async def test_the_account_of_a_request_whose_gateway_vanished_goes_to_the_next_gateway(start_host: StartHost) -> None:
    running = await start_host("tiny")
    first = await (await running.client()).ready()
    submits = [make_submit(number, TOKENS, max_tokens=200, tenant="acme") for number in (1, 2)]
    for submit in submits:
        first.send(submit)
    await first.until(lambda: len(first.token_ids(submits[0].request_id)) >= 5)
    told = [decode_record(packed) for steps in first.of(Steps) for packed in steps.records]
    first.writer.transport.abort()
    second = await (await running.client("second")).ready()
    ids = {submit.request_id for submit in submits}

    def accounts() -> list[AttemptRecord]:
        found = [decode_record(packed) for steps in second.of(Steps) for packed in steps.records]
        return [one for one in found if isinstance(one, AttemptRecord)]

    await second.until(lambda: len(accounts()) == 2)
    told += [decode_record(packed) for steps in second.of(Steps) for packed in steps.records]
    steps = {one.sequence: one for one in told if isinstance(one, StepRecord)}
    for account in accounts():
        assert account.request_id in ids and account.gpu is not None
        assert (account.number, account.error_code, account.who.tenant) == (0, "lost_in_crash", "acme")
        share = account.gpu
        charged = share.prefill_ns + share.decode_ns + share.recompute_ns + share.wasted_ns
        rows = [
            part
            for step in steps.values()
            for one, part in zip(step.request_ids, step.gpu_ns, strict=True)
            if one == account.request_id
        ]
        assert charged == sum(rows)
        scheduled = sum(
            count
            for step in steps.values()
            for one, count in zip(step.request_ids, step.scheduled, strict=True)
            if one == account.request_id
        )
        assert account.usage.output_text is not None and account.usage.input_text is not None
        assert scheduled == account.usage.input_text + account.usage.output_text - 1
    assert running.host.requests == 0
