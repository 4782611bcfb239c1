"""A plan under way: its stages are seen as they begin, its end is taken whole, and there are never too many."""

import sys

import pytest

from analytics.planner.question import PlanJob, WhatIf
from contracts.errors import Unavailable
from dashboard.planner_run import PlannerRuns

JOB = PlanJob(what_if=WhatIf(replicas=3))
PATIENCE_SECONDS = 30.0


def child(code: str) -> tuple[str, ...]:
    """A process that has been sent the job, in `asked`, and then does what a test says."""
    return (sys.executable, "-S", "-c", f"import json, sys, time; asked = json.loads(sys.stdin.read())\n{code}")


def test_an_answer_is_taken_with_its_stages() -> None:
    answer = 'print(json.dumps({"answer": {"replicas": asked["what_if"]["replicas"]}}))'
    code = f'print(json.dumps({{"stage": "one"}}))\n{answer}'
    run = PlannerRuns(child(code)).begin(JOB)
    assert run.wait(PATIENCE_SECONDS)
    assert (run.stages, run.answer, run.refused) == (["one"], {"replicas": 3}, None)
    ended = run.seconds
    assert run.seconds == ended, "an ended plan's time stands still"


def test_a_refusal_is_in_the_planner_s_words() -> None:
    run = PlannerRuns(child('print(json.dumps({"refused": "no GPU is called x"}))')).begin(JOB)
    assert run.wait(PATIENCE_SECONDS)
    assert (run.answer, run.refused) == (None, "no GPU is called x")


def test_a_planner_that_dies_is_said_to_have() -> None:
    run = PlannerRuns(child("sys.exit(3)")).begin(JOB)
    assert run.wait(PATIENCE_SECONDS)
    assert run.refused == "the planner ended without an answer (status 3)"


def test_a_cancelled_plan_gives_its_place_back() -> None:
    runs = PlannerRuns(child("time.sleep(600)"), most=1)
    first = runs.begin(JOB)
    with pytest.raises(Unavailable, match="1 plans are being played"):
        runs.begin(JOB)
    first.cancel()
    assert first.wait(PATIENCE_SECONDS)
    assert first.refused == "it was cancelled"
    second = runs.begin(JOB)
    second.cancel()
    assert second.wait(PATIENCE_SECONDS)


def test_a_planner_that_cannot_be_started_leaves_its_place() -> None:
    runs = PlannerRuns(("no-such-program",), most=1)
    for _ in range(2):
        with pytest.raises(Unavailable, match="cannot be started"):
            runs.begin(JOB)
