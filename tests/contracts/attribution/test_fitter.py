"""The model follows the engine while it runs: cadence, versions, drift."""

import random

import pytest

from algorithms.gpu_time.step_fit import MIN_SAMPLES, PRIOR_CONFIDENCE, fit
from algorithms.gpu_time.step_fitter import DRIFT_MIN_STEPS, DRIFT_WINDOW, REFIT_STEPS, DriftAlarm, StepFitter
from algorithms.gpu_time.step_model import PRIOR, StepModel, StepRow
from tests.contracts.attribution.engines import ENGINE, as_samples, largest_difference, random_rows, steps_of


def follow(
    fitter: StepFitter, engine: StepModel, count: int, *, seed: int = 0, noise: float = 0.02
) -> list[tuple[int, str]]:
    """Let the fitter see steps of an engine, refitting when due; return the steps at which the version changed."""
    changes = []
    for number, (busy_ns, rows) in enumerate(steps_of(engine, count, seed=seed, noise=noise), 1):
        fitter.observe(busy_ns, rows)
        if fitter.is_due and fitter.refit():
            changes.append((number, fitter.model.version))
    return changes


def alarm_of(off: int, total: int, error: float) -> DriftAlarm:
    alarm = DriftAlarm()
    for number in range(total):
        alarm.add(1000, 1000 * (1 - error) if number < off else 1000)
    return alarm


@pytest.mark.parametrize(("error", "is_raised"), [(0.099, False), (0.10, False), (0.101, True)])
def test_drift_is_an_error_above_ten_percent(error: float, is_raised: bool) -> None:
    alarm = alarm_of(DRIFT_WINDOW, DRIFT_WINDOW, error)
    assert alarm.p90 == pytest.approx(error)
    assert alarm.is_raised is is_raised


@pytest.mark.parametrize(("off", "is_raised"), [(25, False), (26, True), (27, True)])
def test_drift_needs_more_than_a_tenth_of_the_steps(off: int, is_raised: bool) -> None:
    assert alarm_of(off, 256, 0.5).is_raised is is_raised


@pytest.mark.parametrize(
    ("steps", "is_raised"), [(DRIFT_MIN_STEPS - 1, False), (DRIFT_MIN_STEPS, True), (DRIFT_MIN_STEPS + 1, True)]
)
def test_drift_is_not_called_on_a_few_steps(steps: int, is_raised: bool) -> None:
    alarm = alarm_of(steps, steps, 0.5)
    assert alarm.is_raised is is_raised
    assert (alarm.p90 is None) is not is_raised


def test_drift_looks_at_the_latest_steps_only() -> None:
    alarm = alarm_of(DRIFT_WINDOW, DRIFT_WINDOW, 0.5)
    for _ in range(DRIFT_WINDOW):
        alarm.add(1000, 1000)
    assert len(alarm) == DRIFT_WINDOW
    assert not alarm.is_raised


def test_noise_is_drift_but_no_shift() -> None:
    source = random.Random(0)
    noisy, slower = DriftAlarm(), DriftAlarm()
    for _ in range(DRIFT_WINDOW):
        noisy.add(1000 * source.lognormvariate(0, 0.2), 1000)
        slower.add(1300, 1000)
    assert (noisy.is_raised, noisy.is_shift) == (True, False)
    assert (slower.is_raised, slower.is_shift) == (True, True)


def test_an_engine_is_learned_in_a_few_fits_and_then_left_alone() -> None:
    fitter = StepFitter()
    assert fitter.model is PRIOR
    changes = follow(fitter, ENGINE, 4 * REFIT_STEPS)
    assert [number for number, _ in changes[:2]] == [MIN_SAMPLES // 4, MIN_SAMPLES]
    assert len({version for _, version in changes}) == len(changes) <= 4
    assert max(number for number, _ in changes) <= REFIT_STEPS
    assert largest_difference(fitter.model, ENGINE, steps_of(ENGINE, 100, seed=9)) < 0.05
    assert fitter.model.confidence > 0.8
    assert not fitter.drift.is_raised


def test_confidence_is_low_until_there_is_evidence() -> None:
    fitter = StepFitter()
    assert fitter.model.confidence == 0.0
    follow(fitter, ENGINE, MIN_SAMPLES - 1)
    assert 0 < fitter.model.confidence <= PRIOR_CONFIDENCE


def test_evidence_grows_though_the_version_stays() -> None:
    fitter = StepFitter()
    follow(fitter, ENGINE, REFIT_STEPS)
    before = fitter.model
    follow(fitter, ENGINE, REFIT_STEPS, seed=1)
    assert fitter.model.version == before.version
    assert fitter.model.samples > before.samples
    assert fitter.model.confidence >= before.confidence


def test_a_slower_engine_is_noticed_and_learned_anew() -> None:
    fitter = StepFitter()
    follow(fitter, ENGINE, 2 * REFIT_STEPS)
    before = fitter.model
    throttled = ENGINE.scaled(1.4)
    steps = steps_of(throttled, DRIFT_WINDOW, seed=2, noise=0.02)
    for busy_ns, rows in steps:
        fitter.observe(busy_ns, rows)
    assert (fitter.drift.is_raised, fitter.is_due) == (True, True)
    assert fitter.refit()
    assert fitter.model.version != before.version
    assert fitter.model.number == before.number + 1
    assert len(fitter.drift) == 0
    assert largest_difference(fitter.model, throttled, steps_of(throttled, 100, seed=9)) < 0.08


def test_a_noisy_engine_is_not_refitted_all_the_time() -> None:
    fitter = StepFitter()
    follow(fitter, ENGINE, REFIT_STEPS, noise=0.3)
    changes = follow(fitter, ENGINE, 4 * REFIT_STEPS, seed=1, noise=0.3)
    assert fitter.drift.is_raised
    assert len(changes) <= 8  # at most one per half of REFIT_STEPS
    assert fitter.model.predict_ns([StepRow(2048, 0)]) == pytest.approx(ENGINE.predict_ns([StepRow(2048, 0)]), rel=0.1)


def test_the_model_of_an_earlier_life_serves_from_the_first_step() -> None:
    earlier = StepFitter()
    follow(earlier, ENGINE, 2 * REFIT_STEPS)
    fitter = StepFitter(earlier.model)
    assert fitter.model == earlier.model
    changes = follow(fitter, ENGINE, REFIT_STEPS, seed=5)
    assert all(number >= MIN_SAMPLES for number, _ in changes)
    assert fitter.next_number > earlier.model.number


def test_steps_that_teach_nothing_change_nothing() -> None:
    fitter = StepFitter()
    for _ in range(100):
        fitter.observe(5, [])
        fitter.observe(0, [StepRow(1, 1)])
        fitter.observe(7, [StepRow(0, 1)])
    assert not fitter.is_due
    assert not fitter.refit()
    assert fitter.model is PRIOR


def test_a_fit_made_elsewhere_can_be_adopted() -> None:
    fitter = StepFitter()
    source = random.Random(0)
    rows = random_rows(source)
    fitter.observe(round(ENGINE.predict_ns(rows)), rows)
    assert not fitter.adopt(ENGINE)  # it stands on no steps
    found = fit(as_samples(steps_of(ENGINE, 100)), number=fitter.next_number)
    assert fitter.adopt(found)
    assert fitter.model is found
