"""Who runs when: priority and arrival, the token budget, preemption, and that everybody finishes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.torch_engine.block_hash import BlockKeys, root_key
from backends.engine.torch_engine.block_manager import BlockManager
from backends.engine.torch_engine.detokenizer import TextStream
from backends.engine.torch_engine.sampling_state import SamplingState
from backends.engine.torch_engine.scheduler import Plan, Scheduler
from backends.engine.torch_engine.sequence import Request, Sequence, State
from contracts.engine.wire import Sampling, Submit


class NoText:
    """Decodes nothing."""

    def push(self, token_id: int) -> str:
        return ""

    def flush(self) -> str:
        return ""


def sequence(number: int, tokens: int, priority: int = 0) -> Sequence:
    sampling = Sampling(max_tokens=64)
    submit = Submit(request_id=bytes([number]), model="", token_ids=[1] * tokens, sampling=sampling, priority=priority)
    state = SamplingState(sampling, index=0, prompt=[], given=[], end_ids=[], vocabulary=8)
    made = Sequence(
        request=Request(submit, arrival=number, arrived_ns=0, max_tokens=64),
        handle=number,
        index=0,
        token_ids=[1] * tokens,
        prompt=tokens,
        keys=BlockKeys(root_key(), 16),
        sampling=state,
        text=TextStream(NoText()),
    )
    made.request.sequences.append(made)
    return made


def scheduler(blocks: int = 64, budget: int = 32, seats: int = 8) -> Scheduler:
    return Scheduler(BlockManager(blocks), budget, seats)


def compute(plan: Plan) -> None:
    """Do what the engine does with a plan: what samples gets a token."""
    for row in plan.rows:
        row.sequence.computed = row.start + row.count
        if row.samples:
            row.sequence.token_ids.append(2)


def shape(plan: Plan) -> list[tuple[int, int, int]]:
    return [(row.sequence.handle, row.start, row.count) for row in plan.rows]


def test_a_prompt_is_cut_into_chunks_beside_which_others_decode():
    engine = scheduler(budget=32)
    engine.add(sequence(1, 10))
    compute(engine.plan())
    engine.add(sequence(2, 70))
    shapes = []
    for _ in range(4):
        plan = engine.plan()
        shapes.append(shape(plan))
        compute(plan)
    assert shapes[0] == [(1, 10, 1), (2, 0, 31)]
    assert shapes[1] == [(1, 11, 1), (2, 31, 31)]
    assert shapes[2] == [(1, 12, 1), (2, 62, 8)]
    assert shapes[3] == [(1, 13, 1), (2, 70, 1)]


def test_the_more_urgent_goes_first_and_among_equals_the_earlier():
    engine = scheduler(budget=16)
    for number, priority in ((1, 5), (2, 0), (3, 5), (4, 0)):
        engine.add(sequence(number, 16, priority))
    order = []
    for _ in range(4):
        plan = engine.plan()
        order += [row.sequence.handle for row in plan.rows if row.start == 0]
        for row in plan.rows:
            engine.finish(row.sequence)
    assert order == [2, 4, 1, 3]


def test_the_latest_of_the_least_urgent_gives_way_and_comes_back_first():
    engine = scheduler(blocks=6, budget=64)
    ones = [sequence(1, 31), sequence(2, 31, priority=1)]
    for one in ones:
        engine.add(one)
    compute(engine.plan())
    late = sequence(3, 10, priority=1)
    engine.add(late)
    victims = []
    for _ in range(40):
        plan = engine.plan()
        victims += [one.handle for one in plan.preempted]
        compute(plan)
        engine.blocks.check_integrity()
    assert victims
    assert 1 not in victims
    assert ones[0].preemptions == 0


def test_an_urgent_newcomer_takes_the_seat_of_a_less_urgent_one_only():
    engine = scheduler(seats=2, budget=64)
    low, same = sequence(1, 8, priority=5), sequence(2, 8, priority=1)
    engine.add(low)
    engine.add(same)
    compute(engine.plan())
    engine.add(sequence(3, 8, priority=1))
    plan = engine.plan()
    assert [one.handle for one in plan.preempted] == [1]
    compute(plan)
    engine.add(sequence(4, 8, priority=1))
    assert not engine.plan().preempted


def test_nobody_overtakes_the_head_of_the_queue():
    engine = scheduler(blocks=4, budget=64)
    running = sequence(1, 30)
    engine.add(running)
    compute(engine.plan())
    engine.add(sequence(2, 60))
    engine.add(sequence(3, 4))
    plan = engine.plan()
    assert [row.sequence.handle for row in plan.rows] == [1]


def test_an_end_in_any_state_returns_seat_and_blocks():
    engine = scheduler(budget=16)
    ones = [sequence(number, 20) for number in range(1, 4)]
    for one in ones:
        engine.add(one)
    compute(engine.plan())  # 1 half way, others waiting
    for one in ones:
        engine.finish(one)
        engine.finish(one)
    assert not engine.has_work
    assert engine.blocks.counts().held == 0
    assert not engine.plan().rows


@settings(max_examples=80, deadline=None)
@given(
    requests=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 30), st.integers(0, 2)), min_size=1, max_size=12),
    blocks=st.integers(6, 20),
    budget=st.integers(4, 64),
    seats=st.integers(1, 4),
)
def test_everybody_finishes_within_budget_and_seats(requests, blocks, budget, seats):
    engine = scheduler(blocks, budget, seats)
    wanted = {}
    for number, (prompt, output, priority) in enumerate(requests):
        one = sequence(number, prompt, priority)
        wanted[one.handle] = prompt + output
        engine.add(one)
    for _ in range(5000):
        plan = engine.plan()
        if not plan.rows:
            break
        assert sum(row.count for row in plan.rows) <= budget
        assert len(engine.running) <= seats
        assert len({row.sequence.handle for row in plan.rows}) == len(plan.rows)
        for row in plan.rows:
            assert row.sequence.state is State.RUNNING
            assert len(engine.blocks.table(row.sequence.handle)) * 16 >= row.start + row.count
        # Every running sequence that decodes is in the plan: the decode buffer relies on it.
        planned = {row.sequence.handle for row in plan.rows}
        assert all(one.handle in planned for one in engine.running if one.remaining == 1)
        compute(plan)
        for row in plan.rows:
            if len(row.sequence.token_ids) >= wanted[row.sequence.handle]:
                engine.finish(row.sequence)
        engine.blocks.check_integrity()
    assert not engine.has_work
    assert engine.blocks.counts().held == 0
