"""A plan in progress: its stages are seen as they begin, its end is taken whole, and there are never too many."""

import shlex
import sys
from decimal import Decimal

import pytest

from analytics.planner.question import GeneratedRequests, PlanJob, WhatIf
from contracts.errors import Unavailable
from dashboard.planner_child import end_with_parent
from dashboard.planner_run import UNSEEN_SECONDS, PlannerRuns
from dashboard.views.planner_form import command_of

JOB = PlanJob(what_if=WhatIf(replicas=3))
PATIENCE_SECONDS = 120.0


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
    assert run.refused == "the simulation ended without a result (status 3)"


def test_a_cancelled_plan_gives_its_place_back() -> None:
    runs = PlannerRuns(child("time.sleep(600)"), most=1)
    first = runs.begin(JOB)
    with pytest.raises(Unavailable, match=r"limit of concurrent simulations \(1\)"):
        runs.begin(JOB)
    first.cancel()
    assert first.wait(PATIENCE_SECONDS)
    assert first.refused == "the simulation was cancelled"
    second = runs.begin(JOB)
    second.cancel()
    assert second.wait(PATIENCE_SECONDS)


def test_a_plan_that_nobody_looks_at_gives_way_to_another() -> None:
    now = [0.0]
    runs = PlannerRuns(child("time.sleep(600)"), clock=lambda: now[0], most=1)
    first = runs.begin(JOB)
    now[0] = 14.0
    first.look()
    now[0] = 14.0 + UNSEEN_SECONDS - 0.001
    with pytest.raises(Unavailable, match=r"limit of concurrent simulations \(1\)"):
        runs.begin(JOB)
    now[0] = 14.0 + UNSEEN_SECONDS
    second = runs.begin(JOB)
    assert first.is_over and first.refused is not None and first.refused.startswith("not viewed for 15 s")
    assert not second.is_over
    second.cancel()
    assert second.wait(PATIENCE_SECONDS)


def test_a_planner_ends_when_nobody_is_left_to_be_answered() -> None:
    parents, rested, ended = iter((7, 7, 7, 1)), list[float](), list[str]()
    end_with_parent(lambda: ended.append("ended"), lambda: next(parents), rested.append)
    assert (len(rested), ended) == (2, ["ended"])


def test_the_shown_command_is_the_plan_word_for_word() -> None:
    what_if = WhatIf(without=("a b",), kv_token_bytes=1048576.25, spot_share=0.07, usd_per_gpu_hour=Decimal("2.50"))
    job = PlanJob(what_if=what_if, hours=1.0, model="x; echo $HOME", made=GeneratedRequests(
        requests=10, per_second=1234.5678, input_tokens=1_000_001.5, output_tokens=128.0
    ))  # fmt: skip
    assert shlex.split(command_of(job)) == [
        *("tollkeeper", "plan", "--generate", "10", "--rate", "1234.5678", "--input-tokens", "1000001.5"),
        *("--output-tokens", "128", "--hours", "1", "--model", "x; echo $HOME", "--without", "a b"),
        *("--usd-per-gpu-hour", "2.50", "--kv-token-bytes", "1048576.25", "--spot-share", "0.07"),
    ]


def test_a_planner_that_cannot_be_started_leaves_its_place() -> None:
    runs = PlannerRuns(("no-such-program",), most=1)
    for _ in range(2):
        with pytest.raises(Unavailable, match="cannot be started"):
            runs.begin(JOB)
