"""When tokens arrived: the sum of the gaps is the time from first to last token, and N tokens have N-1 of them."""

from hypothesis import given
from hypothesis import strategies as st

from contracts.api.generation import Delta
from contracts.metering.gaps import GAP_UNIT_NS
from gateway.replies.progress import Progress

PIECES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 10_000)),  # choice, tokens, units since the last
    max_size=60,
)


def played(pieces) -> tuple[Progress, int]:
    progress, now = Progress(), 1_000_000_000
    for index, tokens, wait in pieces:
        now += wait * GAP_UNIT_NS
        progress.take(Delta(tokens=tokens, index=index), now)
    return progress, now


@given(PIECES)
def test_n_tokens_of_each_choice_have_n_minus_1_gaps(pieces):
    progress, _ = played(pieces)
    tokens = sum(tokens for _, tokens, _ in pieces)
    choices = len({index for index, tokens, _ in pieces if tokens})
    assert progress.tokens == tokens
    assert len(progress.gaps) == tokens - choices
    assert progress.gaps_for(None) == progress.gaps_for(tokens) == progress.gaps
    assert (progress.first_at_ns is None) == (tokens == 0)


@given(PIECES)
def test_the_gaps_of_one_choice_sum_to_the_time_from_its_first_to_its_last_token(pieces):
    single = [(0, tokens, wait) for _, tokens, wait in pieces]
    progress, _ = played(single)
    now, times = 0, []
    for _, tokens, wait in single:
        now += wait
        times += [now] if tokens else []
    assert sum(progress.gaps) == (times[-1] - times[0] if times else 0)


@given(PIECES, st.integers(0, 400))
def test_a_reported_count_changes_the_number_of_gaps_and_never_their_sum(pieces, reported):
    progress, _ = played(pieces)
    choices = len({index for index, tokens, _ in pieces if tokens})
    gaps = progress.gaps_for(reported)
    if not choices:
        assert gaps == []
        return
    wanted = max(reported - choices, 0)
    assert len(gaps) == wanted
    if wanted:
        assert sum(gaps) == sum(progress.gaps)
    assert all(gap >= 0 for gap in gaps)


def test_a_clock_that_stands_still_or_a_gap_of_half_a_unit_is_rounded_not_lost():
    progress = Progress()
    for at in (0, 4_999, 9_999, 24_999):
        progress.take(Delta(tokens=1), at)
    assert progress.gaps == [0, 1, 2]


def test_a_count_far_beyond_what_arrived_is_not_padded():
    progress, _ = played([(0, 1, 0), (0, 1, 5)])
    assert len(progress.gaps_for(2 + (1 << 18))) == 1 + (1 << 18)
    assert progress.gaps_for(3 + (1 << 18)) == [5]


def test_a_bare_role_or_end_is_no_token():
    progress = Progress()
    progress.take(Delta(tokens=0), 1)
    assert progress.first_at_ns is None and progress.tokens == 0 and progress.gaps == []
