"""The fit finds the engine again from its steps: through noise, stalls, few steps and steps that say little."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.gpu_time.attribution import attribute
from algorithms.gpu_time.step_fit import MIN_SAMPLES, PRIOR_CONFIDENCE, confidence_of, fit, relative_errors
from algorithms.gpu_time.step_model import COEFFICIENTS, PRIOR, StepModel, StepRow, compose
from algorithms.gpu_time.step_samples import MAX_REGIMES, SampleWindow, StepSample
from tests.contracts.attribution.engines import (
    ENGINE,
    SMALL_ENGINE,
    STALL_NS,
    Step,
    as_samples,
    batches,
    decodes,
    largest_difference,
    random_rows,
    steps_of,
)

ENGINES = pytest.mark.parametrize("engine", [ENGINE, SMALL_ENGINE], ids=["gpu", "cpu"])


@ENGINES
def test_an_engine_is_found_again_from_exact_steps(engine: StepModel) -> None:
    found = fit(as_samples(steps_of(engine, 400)))
    assert largest_difference(found, engine, steps_of(engine, 200, seed=1)) < 0.04
    assert found.mape is not None and found.mape < 0.01
    assert found.confidence > 0.8


@ENGINES
@pytest.mark.parametrize(("noise", "stalls", "within"), [(0.05, 0.0, 0.06), (0.0, 0.1, 0.05), (0.05, 0.1, 0.08)])
def test_noise_and_stalls_move_predictions_little(
    engine: StepModel, noise: float, stalls: float, within: float
) -> None:
    found = fit(as_samples(steps_of(engine, 800, noise=noise, stalls=stalls)))
    assert largest_difference(found, engine, steps_of(engine, 200, seed=1)) < within


def test_a_soft_ridge_and_the_cost_of_launching_are_found() -> None:
    engine = msgspec.structs.replace(ENGINE, ridge_softness=0.5, launch_ns=2_500_000.0)
    source = random.Random(7)
    samples = []
    for _ in range(600):
        rows, is_dry = random_rows(source), source.random() < 0.2
        busy_ns = round(engine.predict_ns(rows, is_dry=is_dry) * source.lognormvariate(0.0, 0.01))
        samples.append(StepSample(busy_ns, compose(rows, is_dry=is_dry)))
    found = fit(samples)
    assert found.ridge_softness == 0.5
    assert found.launch_ns == pytest.approx(engine.launch_ns, rel=0.1)
    assert relative_errors(found, samples).mean() < 0.015


def test_wrongly_tiny_times_do_not_outweigh_the_rest() -> None:
    source = random.Random(5)
    steps = [(1 if source.random() < 0.1 else busy_ns, rows) for busy_ns, rows in steps_of(ENGINE, 600)]
    assert largest_difference(fit(as_samples(steps)), ENGINE, steps_of(ENGINE, 200, seed=1)) < 0.06


def test_a_rare_regime_is_not_drowned_by_steady_decode() -> None:
    source = random.Random(2)
    steady = [tuple(decodes(source, 64)) for _ in range(3000)]
    rare = [(StepRow(2048, 4096), *decodes(source, 63)) for _ in range(12)]
    steps = [(round(ENGINE.predict_ns(rows) * source.lognormvariate(0, 0.02)), rows) for rows in (*steady, *rare)]
    found = fit(as_samples(steps))
    assert found.predict_ns(rare[0]) == pytest.approx(ENGINE.predict_ns(rare[0]), rel=0.05)


def test_the_order_of_steps_does_not_matter() -> None:
    steps = as_samples(steps_of(ENGINE, 300, noise=0.03))
    forth, back = fit(steps), fit(steps[::-1])
    for name in (*COEFFICIENTS, "ridge_tokens"):
        assert getattr(forth, name) == pytest.approx(getattr(back, name), rel=1e-3, abs=1e-3)


def test_steps_are_split_within_what_each_request_takes_alone() -> None:
    """The fitted model's bounds hold, but for its error, against the true engine's."""
    found = fit(as_samples(steps_of(ENGINE, 600, noise=0.03)))
    for busy_ns, rows in steps_of(ENGINE, 100, seed=3):
        for part_ns, row in zip(attribute(found, busy_ns, rows).parts_ns, rows, strict=True):
            assert part_ns <= 1.05 * ENGINE.predict_ns([row])


@pytest.mark.parametrize("count", [MIN_SAMPLES - 1, MIN_SAMPLES, MIN_SAMPLES + 1])
def test_too_few_steps_only_scale_the_prior(count: int) -> None:
    found = fit(as_samples(steps_of(ENGINE, count)))
    is_scaled = found.pair_ns / found.token_ns == pytest.approx(PRIOR.pair_ns / PRIOR.token_ns, rel=1e-9)
    assert is_scaled == (count < MIN_SAMPLES)
    assert found.samples == count
    assert (found.confidence <= PRIOR_CONFIDENCE) or not is_scaled


def test_before_enough_steps_the_scale_is_right() -> None:
    rows = (StepRow(1, 100), StepRow(1, 200))
    found = fit([StepSample(5_000_000, compose(rows))] * 3)
    assert found.predict_ns(rows) == pytest.approx(5_000_000)
    assert 0 < found.confidence <= PRIOR_CONFIDENCE


def test_without_a_step_the_prior_stays() -> None:
    assert fit([]) is PRIOR
    nothing = [StepSample(100, compose([])), StepSample(0, compose([StepRow(1, 1)])), StepSample(-5, compose([]))]
    assert fit(nothing) is PRIOR


def test_a_prior_that_says_nothing_is_replaced() -> None:
    empty = PRIOR.scaled(0.0)
    steps = as_samples(steps_of(ENGINE, 10))
    assert fit(steps, empty) == fit(steps, PRIOR)


def _decode_only(source: random.Random) -> tuple[StepRow, ...]:
    return tuple(decodes(source, source.choice((1, 8, 32, 64))))


def _same_batch(source: random.Random) -> tuple[StepRow, ...]:
    return tuple(decodes(source, 64))


def _prefill_only(source: random.Random) -> tuple[StepRow, ...]:
    return (StepRow(source.randrange(2, 4096), source.randrange(4096)),)


def _one_stream(source: random.Random) -> tuple[StepRow, ...]:
    return (StepRow(1, 300),)


def _speculative(source: random.Random) -> tuple[StepRow, ...]:
    return tuple(StepRow(5, source.randrange(4000), logits=5) for _ in range(32))


@ENGINES
@pytest.mark.parametrize("kind", [_decode_only, _same_batch, _prefill_only, _one_stream, _speculative])
def test_steps_of_one_kind_are_predicted_though_they_do_not_tell_the_coefficients_apart(
    engine: StepModel, kind: object
) -> None:
    assert callable(kind)
    source = random.Random(4)
    steps: list[Step] = [(round(engine.predict_ns(rows)), rows) for rows in (kind(source) for _ in range(200))]
    found = fit(as_samples(steps))
    # A prefill crosses the ridge where only one coefficient tells, hence the wider bound for the worst of 200 steps.
    assert largest_difference(found, engine, steps) < 0.10
    assert found.mape is not None and found.mape < 0.02


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 10**11), batches()), max_size=80))
def test_no_steps_whatever_break_the_fit(steps: list[tuple[int, list[StepRow]]]) -> None:
    found = fit([StepSample(busy_ns, compose(rows)) for busy_ns, rows in steps])
    for busy_ns, rows in steps:
        parts = attribute(found, max(busy_ns, 0), rows).parts_ns
        assert min(parts, default=0) >= 0
        assert sum(parts) == (max(busy_ns, 0) if any(row.scheduled for row in rows) else 0)
    assert 0 <= found.confidence <= 1


@settings(max_examples=25, deadline=None)
@given(
    token_ns=st.floats(50, 5e5),
    ridge_tokens=st.floats(2, 600),
    pairs_in_tokens=st.floats(0, 1e-3),
    read_in_tokens=st.floats(1e-3, 2e-2),
    logit_in_tokens=st.floats(0, 2),
    fixed_in_tokens=st.floats(0, 1000),
    seed=st.integers(0, 10**6),
)
def test_any_engine_s_unseen_steps_are_predicted(
    token_ns: float,
    ridge_tokens: float,
    pairs_in_tokens: float,
    read_in_tokens: float,
    logit_in_tokens: float,
    fixed_in_tokens: float,
    seed: int,
) -> None:
    """From 2 % noise, the mean error on unseen steps of the same kinds stays within 3 %."""
    engine = StepModel(
        token_ns=token_ns,
        ridge_tokens=ridge_tokens,
        pair_ns=token_ns * pairs_in_tokens,
        read_ns=token_ns * max(read_in_tokens, pairs_in_tokens),
        logit_ns=token_ns * logit_in_tokens,
        fixed_ns=token_ns * fixed_in_tokens,
    )
    found = fit(as_samples(steps_of(engine, 400, seed=seed, noise=0.02)))
    assert relative_errors(found, as_samples(steps_of(engine, 200, seed=seed + 1))).mean() < 0.03


@pytest.mark.parametrize(
    ("steps", "p90", "expected"), [(64, 0.0, 0.5), (64, 0.25, 0.25), (0, 0.0, 0.0), (10**9, 0.1, 0.8), (64, 0.9, 0.0)]
)
def test_confidence_is_evidence_times_accuracy(steps: int, p90: float, expected: float) -> None:
    assert confidence_of(steps, p90) == pytest.approx(expected)


def test_the_window_keeps_the_latest_of_each_regime() -> None:
    window = SampleWindow(per_regime=2)
    steady, rare = (compose([StepRow(1, 100)] * 8), compose([StepRow(2048, 0)]))
    window.add(StepSample(10, rare, 0))
    window.extend(StepSample(10, steady, number) for number in range(1, 100))
    assert sorted(sample.sequence for sample in window.samples()) == [0, 98, 99]
    window.forget_before(99)
    assert [sample.sequence for sample in window.samples()] == [99]


def test_the_window_is_bounded_whatever_comes() -> None:
    source = random.Random(0)
    window = SampleWindow(per_regime=3)
    window.extend(StepSample(STALL_NS, compose(random_rows(source)), number) for number in range(20_000))
    assert len(window) == len(window.samples()) <= 3 * MAX_REGIMES
    window.extend(StepSample(1, compose([StepRow(2**bits, 0)]), bits) for bits in range(60))
    assert len(window) <= 3 * MAX_REGIMES
    assert max(sample.sequence for sample in window.samples() if sample.busy_ns == 1) == 59


def test_the_window_leaves_out_what_teaches_nothing() -> None:
    window = SampleWindow()
    window.extend([StepSample(0, compose([StepRow(1, 1)])), StepSample(9, compose([])), StepSample(-1, compose([]))])
    assert len(window) == 0
