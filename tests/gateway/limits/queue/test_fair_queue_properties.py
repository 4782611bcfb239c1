"""Properties that hold whatever happens in whatever order."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contracts.rules.limits import PRIORITY_CLASSES, QueueSpec
from gateway.limits.queue.fair_queue import FairQueue
from gateway.limits.queue.request import PoolRoom, QueuedRequest
from gateway.limits.queue.sizes import CLASSES, largest_within, rounded_up, size_class
from tests.gateway.limits.queue.queueing import SECOND_NS, expected_next

specs = st.builds(
    QueueSpec,
    max_in_flight=st.none() | st.integers(1, 6),
    max_tokens_in_flight=st.none() | st.integers(50, 400),
    max_waiting=st.integers(1, 12),
    tenant_max_in_flight=st.sampled_from([0.3, 0.5, 1.0]),
    tenant_max_tokens=st.sampled_from([0.3, 0.6, 1.0]),
    ageing_seconds=st.sampled_from([1.0, 10.0]),
    long_prompt_tokens=st.none() | st.just(60),
    long_prompt_slots=st.integers(1, 2),
    deadline_seconds=st.sampled_from([{}, {"batch": 3.0}, {"interactive": 5.0, "standard": 2.0}]),
)


class EveryOrder(RuleBasedStateMachine):
    """Arrivals, turns, tokens, ends, clients that leave, time, changes of the spec: in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = FairQueue(QueueSpec(max_in_flight=2, max_tokens_in_flight=200))
        self.now_ns = 0
        self.waiting: list[QueuedRequest] = []
        self.running: list[QueuedRequest] = []
        self.ends: Counter[QueuedRequest] = Counter()
        self.arrived = 0

    def lose(self, lost: QueuedRequest, state: str) -> None:
        assert lost.state == state
        self.ends[lost] += 1
        if lost in self.waiting:
            self.waiting.remove(lost)

    @rule(
        tenant=st.sampled_from("abcd"),
        prompt=st.integers(0, 120),
        output=st.integers(0, 300),
        priority=st.sampled_from(PRIORITY_CLASSES),
        weight=st.sampled_from([1, 2, 4]),
        at_once=st.booleans(),
    )
    def arrive(self, tenant, prompt, output, priority, weight, at_once) -> None:
        newcomer = QueuedRequest(tenant, prompt, prompt + output, priority, weight)
        self.arrived += 1
        could = not self.waiting and self.queue.load.has_room_for(newcomer)
        if at_once and self.queue.begin_at_once(newcomer, self.now_ns):
            assert could
            self.ends[newcomer] += 1
            self.running.append(newcomer)
            return
        self.waiting.append(newcomer)
        victim = self.queue.arrive(newcomer, self.now_ns)
        if victim is not None:
            assert victim.rank >= newcomer.rank
            assert victim.rank == max(one.rank for one in self.waiting)
            self.lose(victim, "shed")

    @rule()
    def take_turn(self) -> None:
        expected = expected_next(self.queue, self.waiting)
        found = self.queue.next(self.now_ns)
        assert found is expected
        if found is None:
            assert not self.waiting or self.running, "an empty pool leaves nobody waiting"
            return
        assert found.state == "running"
        self.waiting.remove(found)
        self.ends[found] += 1
        self.running.append(found)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), tokens=st.integers(1, 50))
    def produce(self, data, tokens) -> None:
        self.queue.charge(data.draw(st.sampled_from(self.running)), tokens)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), settled=st.none() | st.integers(0, 100))
    def end(self, data, settled) -> None:
        one = data.draw(st.sampled_from(self.running))
        self.running.remove(one)
        self.queue.leave(one, self.now_ns, input_tokens=settled, output_tokens=settled)
        self.queue.leave(one, self.now_ns, input_tokens=settled, output_tokens=settled)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def client_leaves(self, data) -> None:
        one = data.draw(st.sampled_from(self.waiting))
        self.queue.withdraw(one, self.now_ns)
        self.queue.withdraw(one, self.now_ns)
        self.lose(one, "withdrawn")

    @rule(seconds=st.floats(0, 6))
    def wait(self, seconds) -> None:
        self.now_ns += int(seconds * SECOND_NS)
        late = self.queue.expire(self.now_ns)
        for one in late:
            allowed = self.queue.spec.deadline_seconds[one.priority]
            assert self.now_ns - one.arrived_ns > allowed * SECOND_NS
            self.lose(one, "shed")

    @rule(spec=specs)
    def change(self, spec) -> None:
        self.queue.reconfigure(spec)

    @invariant()
    def nothing_is_lost_or_told_twice(self) -> None:
        queue = self.queue
        assert all(count == 1 for count in self.ends.values())
        assert len(self.ends) + len(self.waiting) == self.arrived
        assert queue.waiting == len(self.waiting)
        assert sum(queue.shed_order.waiting_by_class().values()) == len(self.waiting)
        assert {one for one in queue.shed_order.requests()} == set(self.waiting)

    @invariant()
    def nothing_is_negative(self) -> None:
        queue = self.queue
        assert queue.load.in_flight == len(self.running)
        assert queue.load.tokens_in_flight == sum(one.reserved_tokens for one in self.running)
        assert queue.load.long_in_flight == sum(one.is_long for one in self.running)
        assert all(queue.service_of(tenant) >= 0 for tenant in "abcd")

    @invariant()
    def who_has_nothing_here_is_forgotten_once_all_is_still(self) -> None:
        if not self.waiting and not self.running:
            assert self.queue.known_tenants == 0


EveryOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestEveryOrder = EveryOrder.TestCase


@given(st.integers(0, 2**34))
def test_a_size_is_rounded_up_by_less_than_a_32nd(tokens) -> None:
    assert tokens <= rounded_up(tokens) <= tokens + tokens / 32
    assert size_class(rounded_up(tokens)) == size_class(tokens) < CLASSES


@given(st.integers(0, 2**34), st.integers(0, 2**34))
def test_a_class_within_some_tokens_holds_exactly_the_sizes_that_fit(tokens, free) -> None:
    assert (size_class(tokens) <= largest_within(free)) == (rounded_up(tokens) <= free)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40), st.integers(1, 200)), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(60, 300),
)
def test_everybody_is_served_in_the_end_however_large(asked, seats, tokens) -> None:
    queue = FairQueue(QueueSpec(max_in_flight=seats, max_tokens_in_flight=tokens))
    for tenant, prompt, output in asked:
        queue.arrive(QueuedRequest(tenant, prompt, prompt + output), 0)
    running: list[QueuedRequest] = []
    served = 0
    while queue.waiting or running:
        while (one := queue.next(0)) is not None:
            running.append(one)
            served += 1
        assert running, "an empty pool leaves nobody waiting"
        queue.leave(running.pop(0), 0)
    assert served == len(asked)


def test_others_use_of_the_pool_counts_against_its_room() -> None:
    queue = FairQueue(QueueSpec(max_in_flight=8))
    for _ in range(3):
        queue.arrive(QueuedRequest("a", 10, 20), 0)
    crowded = PoolRoom(max_in_flight=8, max_tokens=100, others_in_flight=7, others_tokens=60)
    assert queue.next(0, crowded) is not None
    assert queue.next(0, crowded) is None
    tight = PoolRoom(max_in_flight=8, max_tokens=100, others_in_flight=1, others_tokens=61)
    assert queue.next(0, tight) is None
    assert queue.next(0, PoolRoom(max_in_flight=8, max_tokens=100, others_in_flight=1, others_tokens=60)) is not None
