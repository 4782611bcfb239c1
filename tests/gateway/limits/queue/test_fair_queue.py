"""Who goes next, who gives way, and what is remembered of whom."""

import pytest

from contracts.rules.limits import QueueSpec
from gateway.limits.queue.fair_queue import IDLE_MEMORY_NS
from tests.gateway.limits.queue.queueing import SECOND_NS, drain, next_of, queue_of, request


def arrive(queue, *requests, now_ns=0) -> None:
    for one in requests:
        assert queue.arrive(one, now_ns) is None


def test_a_newcomer_waits_for_one_request_of_a_heavy_tenant_not_for_all() -> None:
    queue = queue_of(max_in_flight=1)
    heavy = [request("heavy", prompt=100) for _ in range(5)]
    light = request("light", prompt=10)
    arrive(queue, *heavy)
    first = next_of(queue)
    arrive(queue, light)
    queue.leave(first, 0)
    assert [one.tenant_id for one in drain(queue)] == ["heavy", "light", "heavy", "heavy", "heavy"]


def test_requests_of_a_tenant_keep_their_order() -> None:
    queue = queue_of(max_in_flight=1)
    own = [request("a", prompt=size) for size in (50, 1, 20)]
    arrive(queue, *own)
    assert drain(queue) == own


def test_output_counts_while_it_is_produced_not_only_at_the_end() -> None:
    queue = queue_of(max_in_flight=2, output_weight=2.0)
    talker, other = request("talker"), request("other")
    arrive(queue, talker, other, request("talker"), request("other"))
    assert {next_of(queue), next_of(queue)} == {talker, other}
    queue.charge(talker, 5)
    assert queue.service_of("talker") == 10 + 2 * 5
    queue.leave(other, 0)
    assert next_of(queue).tenant_id == "other"


def test_the_end_puts_right_what_was_counted_before() -> None:
    queue = queue_of(max_in_flight=1)
    one = request("a", prompt=100)
    arrive(queue, one, request("a"))
    next_of(queue)
    queue.charge(one, 30)
    queue.leave(one, 0, input_tokens=40, output_tokens=31)
    assert queue.service_of("a") == 40 + 2 * 31


def test_a_refund_lets_its_tenant_stand_further_ahead() -> None:
    queue = queue_of(max_in_flight=2)
    expected_long, other = request("a", prompt=100), request("b", prompt=50)
    arrive(queue, expected_long, other, request("a"), request("b"))
    next_of(queue), next_of(queue)
    queue.leave(expected_long, 0, input_tokens=10)
    assert next_of(queue).tenant_id == "a"


def test_who_comes_back_from_idle_has_no_claim_from_its_absence() -> None:
    queue = queue_of(max_in_flight=1)
    arrive(queue, *[request("busy", prompt=100) for _ in range(20)])
    for _ in range(10):
        queue.leave(next_of(queue), 0)
    arrive(queue, *[request("back", prompt=100) for _ in range(10)])
    turns = [one.tenant_id for one in drain(queue)]
    assert turns[:6].count("back") == 3


def test_with_nobody_waiting_a_newcomer_is_lifted_to_the_last_who_left() -> None:
    queue = queue_of(max_in_flight=1)
    running = request("old", prompt=500)
    arrive(queue, running)
    next_of(queue)
    arrive(queue, request("new"))
    assert queue.service_of("new") == 0
    arrive(queue, request("old"))
    queue.leave(running, 0)
    # Both stand at 500 now; the newcomer asked earlier. Had it not been lifted, it could spend 500 tokens at once.
    assert next_of(queue).tenant_id == "new"
    arrive(queue, request("new"))
    assert queue.load.in_flight == 1


def test_a_class_goes_before_the_lower_ones() -> None:
    queue = queue_of(max_in_flight=1)
    batch, standard, interactive = (request("a", priority=one) for one in ("batch", "standard", "interactive"))
    arrive(queue, batch, standard, interactive)
    assert drain(queue) == [interactive, standard, batch]


@pytest.mark.parametrize(("waited_seconds", "first"), [(9.999, "fresh"), (10, "aged"), (10.001, "aged")])
def test_waiting_as_long_as_the_ageing_time_is_worth_one_class(waited_seconds: float, first: str) -> None:
    queue = queue_of(max_in_flight=1, ageing_seconds=10)
    now_ns = int(waited_seconds * SECOND_NS)
    arrive(queue, request("aged", priority="standard"))
    arrive(queue, request("fresh", prompt=1, priority="interactive"), now_ns=now_ns)
    if first == "aged":  # they are of one class now and have had nothing yet: the older goes
        assert next_of(queue, now_ns).tenant_id == "aged"
    else:
        assert next_of(queue, now_ns).tenant_id == "fresh"


def test_batch_needs_twice_the_ageing_time_to_meet_interactive() -> None:
    queue = queue_of(max_in_flight=1, ageing_seconds=10)
    arrive(queue, request("old", priority="batch"))
    arrive(queue, request("new", priority="interactive"), now_ns=19 * SECOND_NS)
    assert next_of(queue, 19 * SECOND_NS).tenant_id == "new"
    queue = queue_of(max_in_flight=1, ageing_seconds=10)
    arrive(queue, request("old", priority="batch"))
    arrive(queue, request("new", priority="interactive"), now_ns=20 * SECOND_NS)
    assert next_of(queue, 20 * SECOND_NS).tenant_id == "old"


def test_waiting_in_a_low_class_gathers_no_claim_against_a_higher_one() -> None:
    queue = queue_of(max_in_flight=1, ageing_seconds=10)
    arrive(queue, *[request("batch", prompt=10, priority="batch") for _ in range(50)])
    arrive(queue, *[request("now", prompt=10, priority="interactive") for _ in range(150)])
    for second in range(100):
        queue.leave(next_of(queue, second * SECOND_NS // 6), second * SECOND_NS // 6)
    turns = [next_of(queue, 21 * SECOND_NS)]
    for _ in range(19):
        queue.leave(turns[-1], 21 * SECOND_NS)
        turns.append(next_of(queue, 21 * SECOND_NS))
    assert 9 <= sum(one.tenant_id == "batch" for one in turns) <= 11


def test_a_tenant_at_its_cap_is_passed_over_and_keeps_its_place() -> None:
    queue = queue_of(max_in_flight=4, tenant_max_in_flight=0.5)
    own = [request("a", prompt=1) for _ in range(3)]
    arrive(queue, *own, request("b", prompt=90), request("b", prompt=90))
    assert [next_of(queue).tenant_id for _ in range(4)].count("a") == 2
    queue.leave(own[0], 0)
    assert next_of(queue) is own[2]


def test_a_tenants_tokens_are_capped_but_not_below_one_request() -> None:
    queue = queue_of(max_tokens_in_flight=1_000, tenant_max_tokens=0.25)
    large, small = request("a", prompt=300, output=0), request("a", prompt=1, output=0)
    arrive(queue, large, small)
    assert next_of(queue) is large
    assert queue.next(0) is None
    queue.leave(large, 0)
    assert next_of(queue) is small


@pytest.mark.parametrize(("prompt", "is_long"), [(99, False), (100, False), (101, True)])
def test_only_prompts_above_the_bound_go_through_the_lane(prompt: int, is_long: bool) -> None:
    queue = queue_of(max_in_flight=8, long_prompt_tokens=100, long_prompt_slots=1)
    arrive(queue, request("a", prompt=500), request("b", prompt=prompt))
    assert next_of(queue).tenant_id == "a"
    assert (queue.next(0) is None) == is_long


def test_short_prompts_pass_their_tenants_long_one_that_waits_for_its_lane() -> None:
    queue = queue_of(max_in_flight=8, long_prompt_tokens=100, long_prompt_slots=1)
    first, second, short = request("a", prompt=500), request("a", prompt=500), request("a", prompt=5)
    arrive(queue, first, second, short)
    assert [next_of(queue), next_of(queue)] == [first, short]
    assert queue.next(0) is None
    queue.leave(first, 0)
    assert next_of(queue) is second


def test_smaller_ones_pass_one_that_does_not_fit_but_not_for_ever() -> None:
    queue = queue_of(max_tokens_in_flight=1_000)
    running = [request("small", prompt=0, output=100) for _ in range(6)]
    arrive(queue, *running)
    for _ in running:
        next_of(queue)
    huge = request("huge", prompt=0, output=900)
    arrive(queue, huge, *[request("small", prompt=1, output=99) for _ in range(60)])
    passed, in_flight = 0, running
    while huge.state == "waiting":
        while (one := queue.next(0)) is not None and one is not huge:
            passed += 1
            in_flight.append(one)
        if huge.state == "waiting":
            queue.leave(in_flight.pop(0), 0)
    assert passed == 10, "as many tokens as the pool holds, and no more"
    assert len(in_flight) <= 1


def test_one_larger_than_the_pool_runs_alone() -> None:
    queue = queue_of(max_tokens_in_flight=100)
    giant = request("giant", output=5_000)
    arrive(queue, request("a", prompt=1), giant)
    first = next_of(queue)
    assert queue.next(0) is None
    queue.leave(first, 0)
    assert next_of(queue) is giant
    arrive(queue, request("a", prompt=1, output=1))
    assert queue.next(0) is None


def test_a_full_queue_sheds_the_lowest_class_for_a_higher_one() -> None:
    queue = queue_of(max_in_flight=1, max_waiting=3)
    older, newer, standard = request(priority="batch"), request(priority="batch"), request(priority="standard")
    arrive(queue, older, newer, standard)
    assert queue.arrive(request(priority="interactive"), 0) is newer
    assert queue.arrive(request(priority="standard"), 0) is older
    newcomer = request(priority="standard")
    assert queue.arrive(newcomer, 0) is newcomer
    assert newcomer.state == "shed"
    assert queue.shed_by_class == {"interactive": 0, "standard": 1, "batch": 2}


def test_nobody_fills_the_queue_against_the_others() -> None:
    queue = queue_of(max_in_flight=1, max_waiting=10)
    noisy = [request("noisy") for _ in range(10)]
    arrive(queue, *noisy)
    for count in range(1, 6):
        assert queue.arrive(request("quiet"), 0) is noisy[-count]
    late = request("quiet")
    assert queue.arrive(late, 0) is late
    again = request("noisy")
    assert queue.arrive(again, 0) is again


@pytest.mark.parametrize(
    ("waited_ns", "is_shed"), [(2 * SECOND_NS - 1, False), (2 * SECOND_NS, False), (2 * SECOND_NS + 1, True)]
)
def test_who_waits_longer_than_its_deadline_is_shed(waited_ns: int, is_shed: bool) -> None:
    queue = queue_of(max_in_flight=1, deadline_seconds={"batch": 2.0})
    patient, late = request(priority="standard"), request(priority="batch")
    arrive(queue, patient, late)
    assert queue.shed_order.next_deadline_ns == 2 * SECOND_NS + 1
    assert queue.expire(waited_ns) == ([late] if is_shed else [])
    assert patient.state == "waiting"


def test_a_change_of_the_spec_applies_to_what_waits() -> None:
    queue = queue_of(max_in_flight=1)
    arrive(queue, request("a"), request("a", prompt=500), request("a", prompt=500), request("a", priority="batch"))
    next_of(queue)
    assert queue.next(0) is None
    queue.reconfigure(QueueSpec(max_in_flight=8, long_prompt_tokens=100, deadline_seconds={"batch": 1.0}))
    assert next_of(queue).input_tokens == 500
    assert next_of(queue).priority == "batch"
    assert queue.next(0) is None, "the other long prompt waits for the lane"
    queue.reconfigure(QueueSpec(max_in_flight=8))
    assert next_of(queue).input_tokens == 500


def test_a_tenants_counter_is_forgotten_once_it_cannot_matter() -> None:
    queue = queue_of(max_in_flight=2)
    keeper = request("keeper")
    arrive(queue, keeper)
    next_of(queue)
    for number in range(1_000):
        once = request(f"once-{number}")
        arrive(queue, once)
        queue.leave(next_of(queue), 0)
    assert queue.known_tenants <= 3
    queue.leave(keeper, 0)
    assert queue.known_tenants == 0


def test_one_who_is_ahead_is_remembered_for_ten_minutes_of_absence() -> None:
    queue = queue_of(max_in_flight=3)
    arrive(queue, request("keeper"))
    next_of(queue)
    greedy, modest = request("greedy", prompt=900), request("modest")
    arrive(queue, greedy, modest)
    assert [next_of(queue), next_of(queue)] == [greedy, modest]
    queue.leave(greedy, 0)
    queue.leave(modest, 0)
    assert queue.service_of("greedy") == 900
    for moment_ns, remembered in ((IDLE_MEMORY_NS - 1, 900), (IDLE_MEMORY_NS, 0)):
        other = request("other", prompt=1)
        queue.arrive(other, moment_ns)
        queue.leave(next_of(queue, moment_ns), moment_ns)
        assert queue.service_of("greedy") == remembered


def test_thousands_who_come_and_leave_waiting_leave_nothing_behind() -> None:
    queue = queue_of(max_in_flight=1, max_waiting=100_000)
    arrive(queue, request("keeper"))
    next_of(queue)
    for number in range(3_000):
        one = request(f"gone-{number}", prompt=number % 900)
        arrive(queue, one)
        queue.withdraw(one, 0)
    assert queue.known_tenants <= 3
    assert queue.next(0) is None
