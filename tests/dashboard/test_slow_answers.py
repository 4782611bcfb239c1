"""Slow answers are given on while the next is found, but never as figures of now when they are of long ago."""

import threading
import time
from typing import Any

import pytest

from analytics.access_scope import EVERYTHING
from contracts.errors import StoreUnavailable
from dashboard import slow_answers
from dashboard.slow_answers import Pending, SlowAnswers

PATIENCE_SECONDS = 120.0


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


def test_what_was_begun_ahead_is_there_when_a_page_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    monkeypatch.setattr(slow_answers, "_ask", store.ask)
    answers = SlowAnswers()
    for _ in range(2):
        answers.begin_page()
        answers.ahead(question, EVERYTHING, 300.0, 1)
        assert not answers.page_waits
    store.go.release()
    _settle(answers)
    assert answers.ask(question, EVERYTHING, 300.0, 1) == 1


def test_a_page_is_not_told_of_a_failure_before_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> int:
        raise StoreUnavailable("it was away")

    monkeypatch.setattr(slow_answers, "_ask", fail)
    answers, store = SlowAnswers(), Store()
    answers.ahead(question, EVERYTHING, 300.0)
    until = time.monotonic() + PATIENCE_SECONDS
    while answers._kept and time.monotonic() < until:
        time.sleep(0.001)
    monkeypatch.setattr(slow_answers, "_ask", store.ask)
    store.go.release()
    answers.begin_page()
    answers.ask(question, EVERYTHING, 300.0)
    _settle(answers)
    assert answers.ask(question, EVERYTHING, 300.0) == 1


def test_what_is_not_given_on_any_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now, store = [100.0], Store()
    monkeypatch.setattr(slow_answers, "_ask", store.ask)
    answers = SlowAnswers(clock=lambda: now[0])
    for hour in range(5):
        for tenant in ("acme", "globex"):
            answers.ahead(question, EVERYTHING, 3_600.0, tenant, hour)
            store.go.release()
        _settle(answers)
        now[0] += 3_600.0
    assert len(answers._kept) == 4, "of the last two hours: each may be given on for another"
    answers.ask(question, EVERYTHING, 3_600.0, "acme", 4)
    now[0] += 7_200.0
    store.go.release()
    _settle(answers)
    answers.ask(question, EVERYTHING, 3_600.0, "acme", 9)
    store.go.release()
    _settle(answers)
    assert (len(answers._kept), len(answers._before)) == (1, 0)


def _settle(answers: SlowAnswers) -> None:
    for _, _, found in answers._kept.values():
        found.result(PATIENCE_SECONDS)
