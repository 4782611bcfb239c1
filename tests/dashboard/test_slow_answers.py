"""Slow answers are given on while the next is found, but never as figures of now when they are of long ago."""

import threading
from typing import Any

import pytest

from analytics.reach import EVERYTHING
from dashboard import slow_answers
from dashboard.slow_answers import Pending, SlowAnswers

PATIENCE_SECONDS = 30.0


class Store:
    """Answers 1, 2, ... one for each `go`."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.answers = 0

    def ask(self, *_: Any) -> int:
        assert self.go.acquire(timeout=PATIENCE_SECONDS)
        self.answers += 1
        return self.answers


def question(*_: Any) -> int:
    raise AssertionError("the store stands in")


@pytest.mark.parametrize(
    ("keep", "age", "is_given"),
    [(15.0, 59.9, True), (15.0, 60.0, False), (300.0, 599.9, True), (300.0, 600.0, False), (15.0, 36_000.0, False)],
)
def test_an_old_answer_is_given_on_for_twice_its_time_or_a_minute(
    monkeypatch: pytest.MonkeyPatch, keep: float, age: float, is_given: bool
) -> None:
    now, store = [100.0], Store()
    monkeypatch.setattr(slow_answers, "_ask", store.ask)
    answers = SlowAnswers(clock=lambda: now[0])
    assert isinstance(answers.ask(question, EVERYTHING, keep), Pending)
    store.go.release()
    _settle(answers)
    now[0] += age
    answers.begin_page()
    given = answers.ask(question, EVERYTHING, keep)
    assert given == 1 if is_given else isinstance(given, Pending)
    assert answers.page_waits is not is_given, "the frame draws the page again"
    store.go.release()
    _settle(answers)
    assert answers.ask(question, EVERYTHING, keep) == 2


def _settle(answers: SlowAnswers) -> None:
    for _, _, found in answers._kept.values():
        found.result(PATIENCE_SECONDS)
