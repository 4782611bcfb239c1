"""How far an answer runs on what is reserved: extended while there is room, ended if there is none."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.api.generation import Delta
from contracts.errors import LimitExceeded, TollkeeperError
from gateway.replies.allowance import NEVER, Allowance
from gateway.replies.progress import Progress


class Purse:
    """Returns up to `left` tokens at once, and `later` more to the one that asks the shared counters."""

    def __init__(self, left=0, later=0, *, is_shared=False):
        self.is_shared = is_shared
        self.left = left
        self.later = later
        self.asked = []

    def extend_now(self, tokens):
        self.asked.append(tokens)
        if tokens > self.left:
            return False
        self.left -= tokens
        return True

    async def extend(self, tokens):
        await asyncio.sleep(0)
        if tokens > self.later:
            return False
        self.later -= tokens
        return True

    def why_not(self):
        return LimitExceeded("no more")


class Answer:
    """An answer of one token at a time, watched as the reply watches it."""

    def __init__(self, reserved, most, purse, thinking_end=None):
        self.ended: list[TollkeeperError] = []
        self.allowance = Allowance(reserved, most, purse, self.ended.append, thinking_end)
        self.progress = Progress()
        self.allowance.begin_attempt(self.progress, 0)

    def make(self, tokens, *, reasoning=False):
        for made in range(tokens):
            if self.ended:
                return made
            self.progress.take(Delta(tokens=1, text="x", reasoning_tokens=int(reasoning)), 0)
            if self.progress.tokens >= self.allowance.next_at:
                self.allowance.defer(1, int(reasoning))
                if self.allowance.offer(1, int(reasoning)) != 1:
                    return made
        return tokens


def test_an_answer_within_its_reservation_asks_for_nothing():
    purse = Purse()
    answer = Answer(100, NEVER, purse)
    assert answer.make(74) == 74
    assert purse.asked == [] and not answer.ended


def test_more_is_asked_for_before_the_reservation_is_used_up():
    purse = Purse(left=1000)
    answer = Answer(100, NEVER, purse)
    answer.make(75)
    assert purse.asked == [64]
    assert answer.allowance.reserved == 164


async def test_an_answer_whose_purse_is_empty_ends_exactly_at_its_reservation():
    answer = Answer(100, NEVER, Purse())
    assert answer.make(500) == 100
    assert [error.message for error in answer.ended] == ["no more"]


async def test_the_last_tokens_of_a_purse_are_used_before_the_end():
    answer = Answer(100, NEVER, Purse(left=40))
    assert answer.make(500) == 140, "twice sixteen and twice four"


def test_an_answer_that_may_not_be_longer_is_never_asked_about():
    purse = Purse()
    answer = Answer(100, 100, purse)
    assert answer.allowance.next_at == NEVER
    answer.make(100)
    assert purse.asked == [] and not answer.ended


async def test_the_shared_counters_are_asked_in_time_where_this_process_has_no_more():
    answer = Answer(100, NEVER, Purse(later=64))
    answer.make(80)
    await asyncio.sleep(0.001)
    assert answer.allowance.reserved == 164
    assert answer.make(500) == 84 and len(answer.ended) == 1


async def test_an_extension_that_comes_after_the_end_changes_nothing():
    answer = Answer(100, NEVER, Purse(later=64))
    answer.make(80)
    answer.allowance.close()
    await asyncio.sleep(0.001)
    assert answer.allowance.reserved == 100
    assert answer.make(100) == 100 and not answer.ended


def test_reasoning_ends_at_its_cap_and_an_answer_after_less_reasoning_does_not():
    cap = (50, LimitExceeded("thought enough"))
    thinking = Answer(NEVER, NEVER, None, cap)
    assert thinking.make(100, reasoning=True) == 50
    assert [error.message for error in thinking.ended] == ["thought enough"]
    speaking = Answer(NEVER, NEVER, None, cap)
    speaking.make(49, reasoning=True)
    assert speaking.make(1000) == 1000 and not speaking.ended


async def test_tokens_that_wait_for_a_slow_client_are_counted():
    answer = Answer(100, NEVER, Purse())
    answer.make(60)
    answer.allowance.hold(39, 0)
    assert not answer.ended
    answer.allowance.hold(40, 0)
    assert answer.ended


async def test_a_continued_answer_goes_on_in_the_room_of_the_first():
    answer = Answer(100, NEVER, Purse())
    answer.make(60)
    answer.progress = Progress()
    answer.allowance.begin_attempt(answer.progress, 60)
    assert answer.make(500) == 40


async def test_an_answer_begun_anew_has_all_of_its_room_again():
    answer = Answer(100, NEVER, Purse())
    answer.make(60)
    answer.progress = Progress()
    answer.allowance.begin_attempt(answer.progress, 0)
    assert answer.make(500) == 100


async def test_what_comes_at_once_waits_until_the_shared_counters_answer():
    purse = Purse(later=5000, is_shared=True)
    answer = Answer(100, NEVER, purse)
    assert answer.make(400) == 100, "nobody has refused it anything, and nobody has granted it more"
    assert not answer.ended and answer.allowance.withheld == 1
    await asyncio.sleep(0.01)
    assert answer.allowance.offer(1) == 1
    assert not answer.ended and answer.allowance.delivered == 101


async def test_what_waits_is_withheld_when_the_shared_counters_refuse():
    answer = Answer(100, NEVER, Purse(is_shared=True))
    assert answer.make(130) == 100
    await asyncio.sleep(0.01)
    assert answer.allowance.offer(1) == 0
    assert len(answer.ended) == 1 and answer.allowance.delivered == 100


async def test_after_a_refusal_nothing_runs_past_the_end():
    answer = Answer(100, NEVER, Purse(left=10, is_shared=True))
    answer.make(80)
    await asyncio.sleep(0.01)
    assert answer.make(1000) == 30, "the 20 that were left, and the last 10 that were to be had"


@pytest.mark.parametrize("piece", [7, 50, 64, 1000])
async def test_an_answer_in_large_pieces_ends_within_the_piece_that_its_limit_does_not_cover(piece):
    answer = Answer(100, NEVER, Purse(left=200))
    delivered = 0
    while not answer.ended:
        answer.progress.take(Delta(tokens=piece, text="x"), 0)
        passing = piece
        if answer.progress.tokens >= answer.allowance.next_at:
            answer.allowance.defer(piece, 0)
            passing = answer.allowance.offer(piece)
        delivered += passing
    assert delivered == answer.allowance.delivered == answer.allowance.reserved == 300


@given(
    st.integers(1, 60),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), max_size=40),
)
def test_no_choice_is_given_more_than_the_caller_allows(most, choices, pieces):
    ended: list[object] = []
    allowance = Allowance(NEVER, most * choices, None, ended.append, None, choices, lambda: LimitExceeded("at most"))
    progress = Progress()
    allowance.begin_attempt(progress, 0)
    made, delivered = dict.fromkeys(range(choices), 0), dict.fromkeys(range(choices), 0)
    for tokens, index in pieces:
        index %= choices
        made[index] += tokens
        progress.take(Delta(tokens=tokens, text="x", index=index), 0)
        passing = tokens
        if progress.tokens >= allowance.next_at:
            allowance.defer(tokens, 0)
            passing = allowance.offer(tokens, 0, index)
        delivered[index] += passing
    assert max(delivered.values()) <= most
    assert sum(delivered.values()) == allowance.delivered
    assert len(ended) == (max(made.values()) > most), "it is ended once, and only by a token beyond"
