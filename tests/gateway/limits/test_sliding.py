"""The sliding counter in memory against sums done by hand, bucket by bucket."""

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.limits.counters.base import Mark
from gateway.limits.counters.retry_slots import MAX_SLOTS
from gateway.limits.counters.sliding import SlidingCounter
from tests.gateway.limits.counting import SECOND_NS, limit

MILLISECOND_NS = 1_000_000
START_NS = 1_773_480_413 * SECOND_NS
BUCKETS, WIDTH_NS, GRACE = 40, 25 * MILLISECOND_NS, 10  # of a window of a second


@dataclass
class ByHand:
    """The same counter without any cleverness: a list of charges and a list of places, by bucket."""

    amount: int
    charges: list[list[int]] = field(default_factory=list)  # bucket, amount
    places: list[list[int]] = field(default_factory=list)  # bucket due, amount, until (ns)

    def window(self, last: int, now_ns: int) -> int:
        charged = sum(amount for bucket, amount in self.charges if last - BUCKETS <= bucket <= last)
        return charged + sum(
            amount
            for bucket, amount, until_ns in self.places
            if bucket <= last <= bucket + GRACE + BUCKETS and until_ns >= now_ns
        )

    def room(self, now_ns: int) -> int:
        bucket = now_ns // WIDTH_NS
        return self.amount - max(self.window(last, now_ns) for last in range(bucket, bucket + BUCKETS + 1))

    def earliest(self, amount: int, now_ns: int, from_ns: int) -> int:
        bucket = from_ns // WIDTH_NS
        sums = [self.window(last, now_ns) for last in range(bucket, bucket + 800)]
        is_free = [held + amount <= self.amount for held in sums]
        span = BUCKETS + GRACE + 1
        return bucket + next(first for first in range(800) if all(is_free[first : first + span]))


@dataclass
class Walk:
    """A counter beside the one by hand, told the same."""

    counter: SlidingCounter
    by_hand: ByHand
    now_ns: int = START_NS
    taken: list[tuple[Mark, int, list[int]]] = field(default_factory=list)

    def take(self, amount: int, claimant: str = "") -> None:
        charge = [self.now_ns // WIDTH_NS, amount]
        self.by_hand.charges.append(charge)
        self.taken.append((self.counter.take(amount, self.now_ns, claimant), amount, charge))

    def settle(self, which: int, charged: int) -> None:
        if self.taken:
            mark, amount, charge = self.taken.pop(which % len(self.taken))
            charge[1] = min(charged, amount)
            self.counter.settle(mark, amount, charge[1], self.now_ns)

    def seek(self, amount: int, ahead_ms: int, is_to_hold: bool) -> None:
        from_ns = self.now_ns + ahead_ms * MILLISECOND_NS
        bucket = self.by_hand.earliest(amount, self.now_ns, from_ns)
        found_ns = self.counter.earliest(amount, self.now_ns, from_ns)
        assert found_ns == max(bucket * WIDTH_NS, from_ns)
        if is_to_hold:
            self.counter.hold(f"key-{len(self.by_hand.places)}", amount, found_ns)
            self.by_hand.places.append([bucket, amount, found_ns + GRACE * WIDTH_NS])

    def claim(self) -> None:
        """Let the next who is waited for come at the last moment."""
        for number, place in enumerate(self.by_hand.places):
            if place[1] and place[2] >= self.now_ns:
                amount, place[1], self.now_ns = place[1], 0, place[2]
                assert self.counter.room(self.now_ns, f"key-{number}") >= amount
                self.take(amount, f"key-{number}")
                return

    def compare(self) -> None:
        assert self.counter.room(self.now_ns) == self.by_hand.room(self.now_ns)
        held = [until_ns for _, amount, until_ns in self.by_hand.places if amount and until_ns >= self.now_ns]
        assert self.counter.retry_slots(self.now_ns) == len(held)


amounts = st.sampled_from([1, 10, 35, 40, 60, 100])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), amounts),
        st.tuples(st.just("settle"), st.integers(0, 30), st.sampled_from([0, 0, 5, 40])),
        st.tuples(st.just("pass"), st.sampled_from([1, 25, 60, 250, 500, 990, 1300])),
        st.tuples(st.just("seek"), amounts, st.sampled_from([0, 0, 0, 30, 700]), st.booleans()),
        st.tuples(st.just("claim")),
    ),
    max_size=25,
)


@settings(max_examples=400, deadline=None)
@given(steps=steps)
def test_room_and_waits_are_what_they_are_by_hand(steps):
    walk = Walk(SlidingCounter(limit(100), ""), ByHand(100))
    for kind, *given_ in steps:
        if kind == "take":
            if given_[0] <= walk.by_hand.room(walk.now_ns):
                walk.take(*given_)
        elif kind == "settle":
            walk.settle(*given_)
        elif kind == "pass":
            walk.now_ns += given_[0] * MILLISECOND_NS
        elif kind == "seek":
            walk.seek(*given_)
        else:
            walk.claim()
        walk.compare()


def test_a_charge_leaves_when_the_bucket_it_lies_in_has_left():
    counter = SlidingCounter(limit(100), "")
    counter.take(100, START_NS)
    last_ns = START_NS + (BUCKETS + 1) * WIDTH_NS
    assert counter.room(last_ns - 1) == 0
    assert counter.room(last_ns) == 100


def test_charges_of_a_passed_window_do_not_keep_later_ones_in_memory():
    counter = SlidingCounter(limit(10**6), "")
    early = counter.take(1, START_NS)
    counter.take(1, START_NS + 2 * SECOND_NS)
    assert early.following is None  # type: ignore[attr-defined]  # a cell, which marks hide


def test_the_reset_is_told_for_what_is_still_charged():
    counter = SlidingCounter(limit(100), "")
    counter.take(10, START_NS)
    late = counter.take(10, START_NS + SECOND_NS // 2)
    counter.settle(late, 10, 0, START_NS + SECOND_NS // 2)
    state = counter.state(START_NS + SECOND_NS // 2)
    assert state.used == 10
    assert state.reset_seconds == 0.525


def test_a_flood_of_many_keys_holds_a_bounded_number_of_places():
    counter = SlidingCounter(limit(10**6), "")
    counter.take(10**6, START_NS)
    held = 0
    for number in range(MAX_SLOTS + 10):
        due_ns = counter.earliest(1, START_NS, START_NS)
        assert due_ns is not None
        if counter.may_hold(f"key-{number}", START_NS, due_ns):
            counter.hold(f"key-{number}", 1, due_ns)
            held += 1
    assert held == MAX_SLOTS
    assert counter.retry_slots(START_NS) == MAX_SLOTS


def test_who_takes_less_than_was_kept_leaves_the_rest_until_the_grace_is_over():
    counter = SlidingCounter(limit(100), "")
    counter.take(100, START_NS)
    due_ns = counter.earliest(80, START_NS, START_NS)
    assert due_ns is not None
    counter.hold("key", 80, due_ns)
    assert counter.room(due_ns) == 20
    assert counter.room(due_ns, "key") == 100
    counter.take(30, due_ns, "key")
    assert counter.room(due_ns) == 20
    assert counter.room(due_ns, "key") == 70
    assert counter.room(due_ns + GRACE * WIDTH_NS + 1) == 70


def test_nobody_claims_a_place_before_it_is_due_or_after_it_lapsed():
    counter = SlidingCounter(limit(100), "")
    counter.take(100, START_NS)
    due_ns = counter.earliest(80, START_NS, START_NS)
    assert due_ns is not None
    counter.hold("key", 80, due_ns)
    assert counter.room(due_ns - 1, "key") == 0
    assert counter.room(due_ns + GRACE * WIDTH_NS, "key") == 100
    counter.take(10, due_ns + GRACE * WIDTH_NS + 1, "key")
    assert counter.retry_slots(due_ns + GRACE * WIDTH_NS + 1) == 0


def test_a_wait_is_shorter_once_a_place_before_it_has_lapsed():
    counter = SlidingCounter(limit(100), "")
    counter.take(100, START_NS)
    due_ns = counter.earliest(60, START_NS, START_NS)
    assert due_ns is not None
    counter.hold("key", 60, due_ns)
    counter.hold("other", 10, due_ns + SECOND_NS)
    behind_ns = counter.earliest(60, START_NS, START_NS)
    assert behind_ns == due_ns + (BUCKETS + GRACE + 1) * WIDTH_NS
    lapsed_ns = due_ns + GRACE * WIDTH_NS + 1
    assert counter.earliest(60, lapsed_ns, lapsed_ns) == lapsed_ns


def test_a_wait_is_shorter_once_a_place_before_it_was_claimed_early_in_its_grace():
    counter = SlidingCounter(limit(100), "")
    counter.take(100, START_NS)
    due_ns = counter.earliest(60, START_NS, START_NS)
    assert due_ns is not None
    counter.hold("key", 60, due_ns)
    assert counter.earliest(60, due_ns, due_ns) == due_ns + (BUCKETS + GRACE + 1) * WIDTH_NS
    counter.take(60, due_ns, "key")
    assert counter.earliest(60, due_ns, due_ns) == due_ns + (BUCKETS + 1) * WIDTH_NS


def test_a_longer_window_goes_on_with_what_is_charged():
    counter = SlidingCounter(limit(100, "second"), "")
    mark = counter.take(60, START_NS)
    counter.adopt(limit(100, "minute"), START_NS)
    assert counter.room(START_NS + 50 * SECOND_NS) == 40
    counter.settle(mark, 60, 10, START_NS + 50 * SECOND_NS)
    assert counter.room(START_NS + 50 * SECOND_NS) == 90
    assert counter.room(START_NS + 62 * SECOND_NS) == 100


def test_a_shorter_window_goes_on_with_what_may_lie_in_it():
    counter = SlidingCounter(limit(100, "minute"), "")
    counter.take(60, START_NS)
    counter.take(10, START_NS + 30 * SECOND_NS)
    counter.adopt(limit(100, "second"), START_NS + 30 * SECOND_NS)
    assert 30 <= counter.room(START_NS + 30 * SECOND_NS) <= 90
    assert counter.room(START_NS + 33 * SECOND_NS) == 100


def test_a_lowered_amount_makes_room_negative_until_charges_have_left():
    counter = SlidingCounter(limit(100), "")
    counter.take(90, START_NS)
    counter.adopt(replace(limit(100), amount=50), START_NS)
    assert counter.room(START_NS) == -40
    due_ns = counter.earliest(50, START_NS, START_NS)
    assert due_ns == START_NS + (BUCKETS + 1) * WIDTH_NS
    assert counter.earliest(51, START_NS, START_NS) is None
