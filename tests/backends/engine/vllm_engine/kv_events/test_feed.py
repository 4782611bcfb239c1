"""Batches of vLLM's events: each once, in order, asked for again where missing, and lost ones named."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engine.vllm_engine.kv_events.feed import END, KvFeed

PATIENCE_NS = 5_000_000_000


class Wire:
    """What a test lets come; what is asked again comes from `kept`, once `answers` says so."""

    def __init__(self) -> None:
        self.coming: deque[tuple[int, bytes]] = deque()
        self.again: deque[tuple[int, bytes]] = deque()
        self.kept: dict[int, bytes] = {}
        self.asked: list[int] = []
        self.answers = True
        self.is_closed = False

    def publish(self, number: int, *, drop: bool = False) -> None:
        payload = b"%d" % number
        self.kept[number] = payload
        if not drop:
            self.coming.append((number, payload))

    def receive(self) -> tuple[int, bytes] | None:
        return self.coming.popleft() if self.coming else None

    def ask_again(self, first: int) -> None:
        self.asked.append(first)
        if self.answers:
            self.again += [(number, one) for number, one in self.kept.items() if number >= first] + [(END, b"")]

    def receive_again(self) -> tuple[int, bytes] | None:
        return self.again.popleft() if self.again else None

    def close(self) -> None:
        self.is_closed = True


def test_batches_come_in_order_without_asking():
    wire = Wire()
    feed = KvFeed(wire)
    for number in range(3):
        wire.publish(number)
    assert feed.take() == [b"0", b"1", b"2"] and feed.take() == [] and not wire.asked


def test_the_first_batches_which_nobody_heard_are_asked_for():
    wire = Wire()
    feed = KvFeed(wire)
    wire.publish(0, drop=True)
    wire.publish(1)
    assert feed.take() == [] and wire.asked == [0]
    assert feed.take() == [b"0", b"1"] and (feed.gaps, feed.lost) == (1, 0)


def test_what_cannot_be_had_again_is_named_and_the_rest_used():
    wire = Wire()
    feed = KvFeed(wire)
    wire.publish(0)
    wire.publish(1, drop=True)
    del wire.kept[1]
    wire.publish(2)
    assert feed.take() == [b"0"]
    assert feed.take() == [None, b"2"] and (feed.gaps, feed.lost) == (1, 1)
    wire.publish(3)
    assert feed.take() == [b"3"]


@pytest.mark.parametrize(("waited_ns", "is_given_up"), [(PATIENCE_NS, False), (PATIENCE_NS + 1, True)])
def test_an_answer_that_does_not_come_is_given_up_in_time(waited_ns, is_given_up):
    wire, now = Wire(), [0]
    wire.answers = False
    feed = KvFeed(wire, lambda: now[0])
    wire.publish(1)
    assert feed.take() == []
    now[0] = waited_ns
    assert feed.take() == ([None, b"1"] if is_given_up else [])


@pytest.fixture
def late():
    """A feed that has given up batch 1, whose answer is still to come; its clock stands at `now[0]`."""
    wire, now = Wire(), [0]
    feed = KvFeed(wire, lambda: now[0])
    wire.answers = False
    wire.publish(0)
    wire.publish(1, drop=True)
    wire.publish(2)
    assert feed.take() == [b"0"]
    now[0] = PATIENCE_NS + 1
    assert feed.take() == [None, b"2"]
    wire.answers = True
    wire.publish(3, drop=True)
    wire.publish(4)
    return wire, feed, now


LATE = [(1, b"1"), (2, b"2"), (END, b"")]


def test_an_answer_that_comes_too_late_does_not_answer_the_next_question(late):
    wire, feed, _ = late
    wire.again += LATE
    assert feed.take() == [] and feed.take() == [b"3", b"4"]
    assert (feed.gaps, feed.lost, wire.asked) == (2, 1, [1, 3])


@pytest.mark.parametrize("heard", range(3))
def test_nor_does_one_that_comes_after_the_next_question(late, heard):
    wire, feed, _ = late
    wire.again += LATE[:heard]
    assert feed.take() == []
    answer = list(wire.again)
    wire.again.clear()
    wire.again += LATE[heard:]
    assert feed.take() == []
    wire.again += answer
    assert feed.take() == [b"3", b"4"] and feed.lost == 1


def test_an_answer_that_never_comes_does_not_hold_the_next_one_up(late):
    wire, feed, now = late
    assert feed.take() == [] and feed.take() == [b"3", b"4"]
    del wire.kept[3], wire.kept[4]
    wire.publish(5, drop=True)
    del wire.kept[5]
    wire.publish(6)
    assert feed.take() == [] and feed.take() == []  # whose end this is nobody knows
    now[0] += PATIENCE_NS + 1
    assert feed.take() == [None, b"6"] and feed.lost == 2


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.data())
def test_whatever_is_dropped_every_batch_comes_once_and_in_order(drops, data):
    wire = Wire()
    feed = KvFeed(wire)
    found: list[bytes | None] = []
    for number, drop in enumerate([*drops, False]):
        wire.publish(number, drop=drop)
        if data.draw(st.booleans()):
            found += feed.take()
    found += feed.take() + feed.take() + feed.take()
    assert found == [b"%d" % number for number in range(len(drops) + 1)]
