"""Planned steps sum to the measured ones, and single ones are as far off as measured ones were."""

import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.gpu_time.step_model import StepModel, StepRow, compose
from algorithms.gpu_time.step_samples import StepSample
from analytics.planner.setup import ReplicaSetup
from analytics.planner.simulation import Simulation
from analytics.planner.step_pace import LEAST, RATIOS, paced
from analytics.planner.step_variation import StepVariation
from analytics.planner.workload import PlannedRequest, Workload, poisson
from contracts.errors import InvalidRequest

MODEL = StepModel(token_ns=2e4, ridge_tokens=10, pair_ns=0.5, read_ns=20, logit_ns=2e4, fixed_ns=5e5)


def steps_with(ratios: list[float], count: int) -> list[StepSample]:
    """Steps of many mixes that took a drawn multiple of what the model says."""
    source = random.Random(4)
    found = []
    for number in range(count):
        rows = [StepRow(1, source.randrange(400)) for _ in range(source.randrange(12))]
        if number % 3 == 0 or not rows:
            rows.append(StepRow(source.randrange(2, 300), 0))
        step = compose(rows, is_dry=number % 7 == 0)
        took = MODEL.predict_composition_ns(step) * source.choice(ratios)
        found.append(StepSample(round(took), step, number))
    return found


@settings(max_examples=15)
@given(st.lists(st.floats(0.5, 20.0), min_size=1, max_size=6))
def test_the_planned_time_of_all_steps_is_the_measured_one(ratios: list[float]) -> None:
    samples = steps_with(ratios, 300)
    pace = paced(samples)
    planned = sum(pace.steps.predict_composition_ns(one.step) for one in samples)
    assert planned == pytest.approx(sum(one.busy_ns for one in samples), rel=1e-6)
    for found, is_prompt in ((pace.prompt_ratios, True), (pace.decode_ratios, False)):
        kind = [one for one in samples if bool(one.step.chunks) is is_prompt]
        lucky = fmean(found) * sum(pace.steps.predict_composition_ns(one.step) for one in kind)
        assert lucky == pytest.approx(sum(one.busy_ns for one in kind), rel=1e-6)
        assert len(found) == RATIOS and list(found) == sorted(found)


def test_rare_slow_steps_lengthen_the_plan_that_a_robust_fit_would_leave_out() -> None:
    samples = steps_with([*[1.0] * 24, 9.0], 1_000)
    pace = paced(samples)
    typical = MODEL.decode_ns(4, 400)
    assert pace.steps.decode_ns(4, 400) == pytest.approx(typical * (24 + 9) / 25, rel=0.1)
    for ratios in (pace.prompt_ratios, pace.decode_ratios):
        assert ratios[-1] > 4 and ratios[RATIOS // 2] < 1

    workload = poisson(800, 60.0, 120, 16, seed=2)
    even = Simulation([ReplicaSetup(steps=pace.steps)]).run(workload).ttft_ms
    lucky = ReplicaSetup(steps=pace.steps, prompt_ratios=pace.prompt_ratios, decode_ratios=pace.decode_ratios)
    uneven = Simulation([lucky]).run(workload).ttft_ms
    assert even is not None and uneven is not None
    assert uneven.p95 > 1.2 * even.p95, "who waits at the worst waits for the slow ones"


def test_of_few_steps_of_a_kind_no_spread_is_told() -> None:
    samples = steps_with([1.0, 2.0], 300)
    prompts = [one for one in samples if one.step.chunks]
    decodes = [one for one in samples if not one.step.chunks]
    for count, told in ((LEAST - 1, 0), (LEAST, RATIOS)):
        for some in ([*prompts[:count], *decodes], [*prompts, *decodes[:count]]):
            pace = paced(some)
            assert len(pace.prompt_ratios) == len(pace.decode_ratios) == told


def test_ratios_that_are_one_change_nothing() -> None:
    workload = poisson(300, 50.0, 100, 20, seed=5)
    plain, lucky = (
        Simulation([ReplicaSetup(steps=MODEL, host_gap_ns=1e5, prompt_ratios=ratios, decode_ratios=ratios)])
        .run(workload)
        .as_json()
        for ratios in ((), (1.0,) * RATIOS)
    )
    assert plain == lucky


def test_a_run_s_luck_is_the_mean_of_its_steps() -> None:
    luck = StepVariation([0.5, 1.5], [1.0, 5.0], "seed")
    assert {luck.of_prompt_step() for _ in range(50)} == {0.5, 1.5}
    assert fmean(luck.of_run(4) for _ in range(2_000)) == pytest.approx(3.0, abs=0.1)
    assert abs(luck.of_run(10_000) - 3) <= 2 * 16 / 10_000


@pytest.mark.parametrize("ratio", [-0.1, float("inf"), float("nan")])
def test_ratios_that_cannot_be_are_refused(ratio: float) -> None:
    with pytest.raises(InvalidRequest, match="decode_ratios are numbers of 0 or more"):
        ReplicaSetup(steps=MODEL, prompt_ratios=(1.0,), decode_ratios=(1.0, ratio))
    with pytest.raises(InvalidRequest, match="of both kinds of steps or of none"):
        ReplicaSetup(steps=MODEL, decode_ratios=(1.0,))


def test_steps_that_take_no_time_end_the_run_all_the_same() -> None:
    idle = ReplicaSetup(steps=MODEL, prompt_ratios=(0.0,), decode_ratios=(0.0,))
    outcome = Simulation([idle]).run(Workload([PlannedRequest(0, 50, 30)], "no time"))
    assert outcome.served == 1
