"""What is known of how quick models are: after a few answers, above their mean, and not for ever."""

import pytest

from gateway.routing.routes.pace import PaceBook

SECOND = 1_000_000_000


def answer(ttft=None, took=1.0, tokens=10, ended=100.0):
    """Return when an answer began, its first token if it was seen, its end, and how many tokens it has."""
    began = round((ended - took) * SECOND)
    return began, None if ttft is None else began + round(ttft * SECOND), round(ended * SECOND), tokens


def book(*answers):
    made = PaceBook()
    for one in answers:
        made.learn("m", *one)
    return made


NOW = 100 * SECOND


def test_nothing_is_known_of_a_model_after_two_answers_and_something_after_three():
    assert book(*[answer(0.2)] * 2).ttft_seconds("m") is None
    assert book(*[answer(0.2)] * 3).ttft_seconds("m") == pytest.approx(0.2)
    assert book(*[answer(0.2)] * 3).ttft_seconds("other") is None


def test_answers_that_scatter_are_expected_later_than_their_mean():
    seen = book(*[answer(0.1 + 0.2 * (number % 2)) for number in range(40)])
    assert 0.3 < seen.ttft_seconds("m") < 0.5


def test_an_answer_takes_its_beginning_and_its_tokens():
    streamed = book(*[answer(0.5, took=1.5, tokens=10)] * 3)
    assert streamed.answer_seconds("m", 20) == pytest.approx(0.5 + 20 * 0.1)
    whole = book(*[answer(None, took=2.0, tokens=10)] * 3)
    assert whole.answer_seconds("m", 20) == pytest.approx(4.0) and whole.ttft_seconds("m") is None


def test_what_waits_there_now_counts_where_it_is_more_than_answers_lately_waited():
    streamed = book(*[answer(0.5, took=1.5, tokens=10)] * 3)
    for wait, begins in ((0.4, 0.5), (0.5, 0.5), (0.6, 0.6)):
        assert streamed.answer_seconds("m", 20, wait) == pytest.approx(begins + 2.0)


def test_an_answer_of_unknown_length_says_nothing_of_the_pace_of_tokens():
    broken = book(*[answer(0.2, tokens=None)] * 3)
    assert broken.answer_seconds("m", 20) is None and broken.ttft_seconds("m") == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("left_out", "seconds", "states_budget", "is_due"),
    [
        (19, 5, False, True),
        (18, 5, False, False),
        (19, 4.999, False, False),  # at much traffic the pause bounds it
        (1_000, 4.999, False, False),
        (0, 29.999, False, False),
        (0, 30, False, True),  # at little traffic the time does
        (1_000, 299.999, True, False),
        (0, 300, True, True),
    ],
)
def test_a_probe_is_due_after_so_many_requests_or_so_long(left_out, seconds, states_budget, is_due):
    seen = book(*[answer(9.0)] * 3)
    seen.begin_probe("m", NOW)
    for _ in range(left_out):
        seen.leave_out("m")
    at_ns = NOW + round(seconds * SECOND)
    assert seen.is_probe_due("m", at_ns, states_budget=states_budget) is is_due
    seen.begin_probe("m", at_ns)
    assert not seen.is_probe_due("m", at_ns, states_budget=states_budget), "one at a time"


def test_what_a_probe_shows_replaces_what_was_known():
    seen = book(*[answer(9.0, took=10.0)] * 50)
    assert seen.ttft_seconds("m") == pytest.approx(9.0)
    seen.begin_probe("m", NOW)
    seen.learn("m", *answer(9.0, took=10.0, ended=109.9))  # it had begun before
    assert seen.ttft_seconds("m") == pytest.approx(9.0)
    seen.learn("m", *answer(0.02, took=0.12, ended=111.0))
    assert seen.ttft_seconds("m") == pytest.approx(0.02)
    assert seen.answer_seconds("m", 10) == pytest.approx(0.12)
    for _ in range(3):
        seen.learn("m", *answer(9.0, took=10.0, ended=140.0))
    assert seen.ttft_seconds("m") > 2, "one good answer does not hide that it is slow again"


def test_nothing_is_probed_of_which_nothing_is_known():
    assert not PaceBook().is_probe_due("m", NOW)
    PaceBook().begin_probe("m", NOW)
    PaceBook().leave_out("m")
