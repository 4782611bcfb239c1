"""A pause between two tokens counts while the target could have sent one, by a loop whose time is only counted."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from contracts.serving.failures import FailurePolicy
from gateway.routing.attempts import time_limits
from gateway.routing.attempts.attempt_sink import AttemptSink
from gateway.routing.attempts.time_limits import TimeLimits


class Looks:
    """Stands for the timers: the limits' next look, which the test makes when it is time."""

    def timer(self, seconds, look):
        self.next = look


class Flow:
    """The reply's side of a sink: keeps how to hold the producer back."""

    def attach_flow(self, pause, resume):
        self.pause, self.resume = pause, resume


@pytest.fixture
def watched(monkeypatch):
    """Provide a call that is watched: its progress, its flow, its looks, and why it has expired."""
    flow, looks = Flow(), Looks()
    expired: list[str] = []
    timers: list[Any] = []
    sink = AttemptSink(cast(Any, flow), lambda: None)
    sink.attach_flow(lambda: None, lambda: None)
    progress = SimpleNamespace(last_at_ns=1)
    monkeypatch.setattr(time_limits, "RunningTimer", looks.timer)
    limits = TimeLimits(FailurePolicy(between_tokens_seconds=10.0), None)
    limits._watch(sink, cast(Any, progress), expired.append, timers)
    looks.next()  # sees the first token
    return progress, flow, looks, expired


def test_a_target_that_pauses_by_itself_has_stalled(watched):
    _, _, looks, expired = watched
    looks.next()
    assert "between two tokens" in expired[0]


def test_a_target_whose_tokens_come_has_not(watched):
    progress, _, looks, expired = watched
    for at in (2, 3, 4):
        progress.last_at_ns = at
        looks.next()
    assert not expired


@pytest.mark.parametrize("looks_meanwhile", [0, 1, 3])
def test_the_time_in_which_a_slow_client_held_it_back_does_not_count(watched, looks_meanwhile):
    _, flow, looks, expired = watched
    flow.pause()
    for _ in range(looks_meanwhile):
        looks.next()
    flow.resume()
    looks.next()
    assert not expired, "it may have gone on only just now"
    looks.next()
    assert len(expired) == 1, "it had a whole pause for itself"
