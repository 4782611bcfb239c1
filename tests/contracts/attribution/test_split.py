"""The laws of `steptime-as/1`. Where whole nanoseconds bend one, the test says by how much."""

import random
from collections import Counter
from fractions import Fraction

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from algorithms.gpu_time.attribution import (
    METHOD,
    RequestTime,
    RowTime,
    attribute,
    classify,
    split_exactly,
    step_confidence,
)
from algorithms.gpu_time.step_model import DECODE, ENCODE, PRIOR, StepModel, StepRow
from contracts.recording.records import GpuShare
from tests.contracts.attribution.engines import ENGINE, batches, busy_times, models, patient, step_rows

weights = st.lists(st.just(0.0) | st.floats(0, 1e300), max_size=40)


@patient
@given(busy_times, weights)
def test_parts_sum_to_the_whole_exactly(total: int, shares: list[float]) -> None:
    parts = split_exactly(total, shares)
    assert min(parts, default=0) >= 0
    assert sum(parts) == (total if any(shares) else 0)
    assert [part for part, share in zip(parts, shares, strict=True) if not share and part] == []


@patient
@given(busy_times, st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=40))
def test_every_part_is_within_one_of_its_exact_share(total: int, shares: list[float]) -> None:
    exact_sum = sum(map(Fraction, shares))
    for part, share in zip(split_exactly(total, shares), shares, strict=True):
        assert abs(part - total * Fraction(share) / exact_sum) <= 1 + Fraction(1, 10**3)


def test_a_negative_time_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="negative amount: -1"):
        split_exactly(-1, [1.0])


@patient
@given(models(), busy_times, batches())
def test_a_step_is_charged_to_the_nanosecond(model: StepModel, busy_ns: int, rows: list[StepRow]) -> None:
    parts = attribute(model, busy_ns, rows).parts_ns
    assert min(parts, default=0) >= 0
    assert sum(parts) == (busy_ns if any(row.scheduled for row in rows) else 0)


@patient
@given(models(), busy_times, batches())
def test_who_is_not_scheduled_pays_nothing(model: StepModel, busy_ns: int, rows: list[StepRow]) -> None:
    parts = attribute(model, busy_ns, rows).parts_ns
    assert [part for part, row in zip(parts, rows, strict=True) if part and not row.scheduled] == []


@patient
@given(models(), busy_times, batches(min_size=1), step_rows(min_scheduled=1), st.integers(2, 8))
def test_equals_pay_equal_to_the_nanosecond(
    model: StepModel, busy_ns: int, others: list[StepRow], row: StepRow, count: int
) -> None:
    parts = attribute(model, busy_ns, [*others, *[row] * count]).parts_ns[len(others) :]
    assert max(parts) - min(parts) <= 1


@patient
@given(models(), busy_times, batches(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nobody_s_part(
    model: StepModel, busy_ns: int, rows: list[StepRow], source: random.Random
) -> None:
    """Among rows of equal weight, place decides who gets an odd nanosecond; what the group gets does not change."""
    order = source.sample(range(len(rows)), len(rows))
    before = attribute(model, busy_ns, rows)
    after = attribute(model, busy_ns, [rows[place] for place in order])

    shares = model.weights(rows)
    charged = Counter(zip(shares, before.parts_ns, strict=True))
    assert charged == Counter(zip((shares[place] for place in order), after.parts_ns, strict=True))
    assert (after.predicted_ns, after.confidence) == (before.predicted_ns, before.confidence)


@patient
@given(models(), busy_times, batches(min_size=1))
def test_who_a_request_is_changes_nothing(model: StepModel, busy_ns: int, rows: list[StepRow]) -> None:
    """Phase, cached tokens and the like say what a charge was for, not how much it is."""
    others = [StepRow(row.scheduled, row.context, row.logits, cached=3, phase=DECODE, aborted=True) for row in rows]
    assert attribute(model, busy_ns, others).parts_ns == attribute(model, busy_ns, rows).parts_ns


@patient
@given(models(), busy_times, batches(min_size=1), st.data())
def test_no_coalition_pays_more_than_alone(
    model: StepModel, busy_ns: int, rows: list[StepRow], data: st.DataObject
) -> None:
    """In the core, scaled to the measured time; each row's rounding may add one nanosecond."""
    chosen = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    together_ns = model.predict_ns(rows)
    assume(together_ns > 0)
    alone_ns = model.predict_ns([row for row, is_in in zip(rows, chosen, strict=True) if is_in])
    paid_ns = sum(part for part, is_in in zip(attribute(model, busy_ns, rows).parts_ns, chosen, strict=True) if is_in)
    assert paid_ns <= busy_ns * (alone_ns / together_ns) * (1 + 1e-9) + sum(chosen)


@patient
@given(models(), batches(min_size=1), st.data())
def test_no_coalition_s_weight_is_above_its_own_step(
    model: StepModel, rows: list[StepRow], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    paid = sum(weight for weight, is_in in zip(model.weights(rows), chosen, strict=True) if is_in)
    alone = model.predict_ns([row for row, is_in in zip(rows, chosen, strict=True) if is_in])
    assert paid <= alone * (1 + 1e-9) + 1e-6


@patient
@given(models(), busy_times, batches(min_size=1), st.data(), st.integers(0, 2000), st.integers(0, 50_000))
def test_more_tokens_or_context_never_cost_less(
    model: StepModel, busy_ns: int, rows: list[StepRow], data: st.DataObject, scheduled: int, context: int
) -> None:
    """The step's time held fixed. Whole nanoseconds may take one back; floats may take a part in 10^12."""
    place = data.draw(st.integers(0, len(rows) - 1))
    row = rows[place]
    more = [*rows]
    more[place] = StepRow(row.scheduled + scheduled, row.context + context, row.logits)
    assume(any(model.weights(rows)) and any(model.weights(more)))
    before = attribute(model, busy_ns, rows).parts_ns[place]
    assert attribute(model, busy_ns, more).parts_ns[place] >= before - 1 - busy_ns * 1e-12


@patient
@given(models(), busy_times, batches(min_size=1), st.integers(0, 50_000), st.integers(1, 2000), st.integers(1, 2000))
def test_splitting_a_request_never_pays(
    model: StepModel, busy_ns: int, others: list[StepRow], context: int, first: int, second: int
) -> None:
    """One chunk made two: tokens and pairs stay, keys are read twice, the fixed part is shared twice."""
    whole = [*others, StepRow(first + second, context)]
    halves = [*others, StepRow(first, context, logits=0), StepRow(second, context + first)]
    assume(any(model.weights(whole)))
    paid_whole = attribute(model, busy_ns, whole).parts_ns[-1]
    paid_halves = sum(attribute(model, busy_ns, halves).parts_ns[-2:])
    assert paid_halves >= paid_whole - 3 - busy_ns * 1e-12


@patient
@given(models(), batches(min_size=1), st.integers(0, 50_000), st.integers(1, 2000), st.integers(1, 2000))
def test_merging_saves_at_most_one_fixed_part_and_one_reading_of_keys(
    model: StepModel, others: list[StepRow], context: int, first: int, second: int
) -> None:
    merged = model.weights([*others, StepRow(first + second, context)])
    apart = model.weights([*others, StepRow(first, context, logits=0), StepRow(second, context + first)])
    saved = sum(apart[-2:]) - merged[-1]
    assert saved <= model.fixed_ns + model.read_ns * (context + first + second) + 1e-9 * sum(apart) + 1e-6


def test_a_prefill_carries_the_computing_and_decodes_their_keys() -> None:
    decodes = [StepRow(1, context, phase=DECODE) for context in (500, 2000, 8000, 100, 20_000)]
    parts = attribute(ENGINE, 20_000_000, [StepRow(512, 0), *decodes]).parts_ns
    assert 0.80 < parts[0] / sum(parts) < 0.95
    assert parts[5] > parts[3] > parts[4]  # by context: 20,000, 8,000, 100


def test_a_short_chunk_over_a_long_context_costs_what_reading_it_costs() -> None:
    attention = StepModel(token_ns=0, ridge_tokens=1, pair_ns=0.9, read_ns=35, logit_ns=0, fixed_ns=0)
    assert attention.weights([StepRow(2, 100_000), StepRow(1, 100_000)]) == [35 * 100_002, 35 * 100_001]
    assert attention.weights([StepRow(200, 100_000)]) == [pytest.approx(0.9 * 20_020_100)]  # computing takes longer


def test_a_step_with_nothing_scheduled_charges_nobody() -> None:
    assert attribute(ENGINE, 5_000_000, []).parts_ns == []
    assert attribute(ENGINE, 5_000_000, [StepRow(0, 100), StepRow(0, 0)]).parts_ns == [0, 0]


def test_without_any_cost_known_tokens_decide() -> None:
    nothing = StepModel(token_ns=0, ridge_tokens=0, pair_ns=0, read_ns=0, logit_ns=0, fixed_ns=0)
    assert attribute(nothing, 100, [StepRow(3, 9), StepRow(1, 9), StepRow(0, 9)]).parts_ns == [75, 25, 0]


@pytest.mark.parametrize("row", [StepRow(-1, 0), StepRow(0, -1), StepRow(1, -1), StepRow(5, -1)])
def test_a_negative_count_is_refused(row: StepRow) -> None:
    for rows in ([row], [StepRow(1, 1), row]):
        with pytest.raises(ValueError, match="cannot have"):
            attribute(ENGINE, 100, rows)
        with pytest.raises(ValueError, match="cannot have"):
            ENGINE.predict_ns(rows)


def test_a_split_names_its_method_fit_and_confidence() -> None:
    model = StepModel(
        token_ns=10, ridge_tokens=1, pair_ns=0, read_ns=0, logit_ns=0, fixed_ns=0, number=3, confidence=0.8
    )
    rows = [StepRow(50, 0), StepRow(50, 0)]
    found = attribute(model, 2000, rows)
    assert (found.method, found.fit_version) == (METHOD, model.version)
    assert model.version.startswith("3.")
    assert found.predicted_ns == 1000
    assert found.confidence == pytest.approx(0.4)  # the step took twice what was predicted
    assert attribute(model, 500, rows).confidence == pytest.approx(0.4)
    assert attribute(model, 1000, rows).confidence == pytest.approx(0.8)


def test_a_step_of_one_request_needs_no_model() -> None:
    assert attribute(PRIOR, 77, [StepRow(1, 5), StepRow(0, 5)]).confidence == 1.0
    assert step_confidence(0.9, 0, 0.0, 2) == 0.0


def test_the_version_follows_the_coefficients_and_nothing_else() -> None:
    same = msgspec.structs.replace(ENGINE, confidence=0.5, samples=9)
    other = msgspec.structs.replace(ENGINE, pair_ns=ENGINE.pair_ns + 1e-9)
    assert same.version == ENGINE.version != other.version


def test_a_recomputed_share_is_the_platform_s_and_an_aborted_part_the_client_s() -> None:
    assert classify(StepRow(10, 0), 101) == RowTime(101, 0, 0)
    assert classify(StepRow(10, 0, recompute=3), 101) == RowTime(71, 30, 0)
    assert classify(StepRow(10, 0, recompute=99), 101) == RowTime(0, 101, 0)
    assert classify(StepRow(10, 0, recompute=3, aborted=True), 101) == RowTime(0, 0, 101)
    assert classify(StepRow(0, 0, recompute=3), 0) == RowTime(0, 0, 0)


def test_a_request_s_steps_add_up_by_phase() -> None:
    time = RequestTime()
    time.add(StepRow(100, 0, phase=ENCODE), 50, 1.0)
    time.add(StepRow(100, 0, recompute=50), 1000, 0.5)
    time.add(StepRow(1, 100, phase=DECODE), 300, 1.0)
    time.add(StepRow(1, 101, phase=DECODE, aborted=True), 150, 1.0)
    assert time.total_ns == 1500
    assert time.share(2.5) == GpuShare(550, 300, 500, 150, 2.5, METHOD, 1000 / 1500)


def test_a_request_in_no_step_claims_no_method() -> None:
    assert RequestTime().share() == GpuShare()
