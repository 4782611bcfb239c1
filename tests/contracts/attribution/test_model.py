"""What a step, a prefill and a prefix hit are predicted to cost."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.gpu_time.step_model import PRIOR, StepComposition, StepModel, StepRow, compose, pairs
from tests.contracts.attribution.engines import ENGINE, batches, models, patient


@patient
@given(models(), batches())
def test_the_weights_sum_to_the_prediction(model: StepModel, rows: list[StepRow]) -> None:
    assert sum(model.weights(rows)) == pytest.approx(model.predict_ns(rows))


@patient
@given(models(), batches(), st.data())
def test_more_rows_never_take_less_time(model: StepModel, rows: list[StepRow], data: st.DataObject) -> None:
    fewer = data.draw(st.lists(st.sampled_from(rows), unique_by=id)) if rows else []
    assert model.predict_ns(fewer) <= model.predict_ns(rows) * (1 + 1e-12)


@patient
@given(st.integers(1, 3000), st.integers(0, 3000), st.integers(0, 10_000))
def test_attention_pairs_of_chunks_add_up(first: int, second: int, context: int) -> None:
    assert pairs(first, context) + pairs(second, context + first) == pairs(first + second, context)


def test_pairs_are_counted_causally() -> None:
    assert pairs(3, 10) == 11 + 12 + 13


def test_a_composition_keeps_what_time_depends_on() -> None:
    rows = [StepRow(1, 10), StepRow(1, 20), StepRow(5, 3, logits=0), StepRow(0, 99)]
    assert compose(rows) == StepComposition(tokens=7, requests=3, logits=2, reads=32, chunks=((5, 3),))


def test_below_the_ridge_tokens_ride_for_free_and_above_they_pay() -> None:
    lean = StepModel(token_ns=10, ridge_tokens=100, pair_ns=0, read_ns=0, logit_ns=0, fixed_ns=0)
    assert [lean.predict_ns([StepRow(tokens, 0)]) for tokens in (1, 99, 100, 101)] == [1000, 1000, 1000, 1010]


@pytest.mark.parametrize(
    ("softness", "tokens"), [(0.0, [100, 100, 300]), (0.5, [104.403, 141.421, 316.228]), (1.0, [130, 200, 400])]
)
def test_a_ridge_is_a_corner_a_curve_or_a_sum(softness: float, tokens: list[float]) -> None:
    model = msgspec.structs.replace(ENGINE, ridge_tokens=100.0, ridge_softness=softness)
    assert [model.linear_tokens(count) for count in (30, 100, 300)] == pytest.approx(tokens, abs=1e-3)


@patient
@given(models(), st.integers(1, 9000), st.integers(1, 9000))
def test_each_token_s_share_of_the_linear_layers_only_falls_with_more_of_them(
    model: StepModel, tokens: int, more: int
) -> None:
    few, many = model.linear_tokens(tokens), model.linear_tokens(tokens + more)
    assert max(tokens, model.ridge_tokens) <= few * (1 + 1e-12)
    assert few <= many * (1 + 1e-12)
    assert many / (tokens + more) <= few / tokens * (1 + 1e-12)


@patient
@given(models(), batches(min_scheduled=1, min_size=1))
def test_launching_on_a_device_that_stood_still_is_shared_equally(model: StepModel, rows: list[StepRow]) -> None:
    assert model.predict_ns(rows, is_dry=True) == pytest.approx(model.predict_ns(rows) + model.launch_ns)
    each_ns = model.launch_ns / len(rows)
    dry = model.weights(rows, is_dry=True)
    assert dry == pytest.approx([weight + each_ns for weight in model.weights(rows)])
    assert sum(dry) == pytest.approx(model.predict_ns(rows, is_dry=True))


def test_a_decode_step_is_its_rows() -> None:
    rows = [StepRow(1, context) for context in (10, 500, 4000)]
    assert ENGINE.decode_ns(3, 4510) == pytest.approx(ENGINE.predict_ns(rows))
    assert ENGINE.decode_ns(0, 0) == 0.0


def test_a_prefill_is_the_sum_of_its_chunks() -> None:
    chunks = [StepRow(4096, 100, logits=0), StepRow(4096, 4196, logits=0), StepRow(8, 8292)]
    expected = sum(ENGINE.predict_ns([chunk]) for chunk in chunks)
    assert ENGINE.prefill_ns(8200, 100, chunk_tokens=4096) == pytest.approx(expected)
    assert ENGINE.prefill_ns(0) == 0.0


def test_scaling_keeps_the_shape() -> None:
    rows = [StepRow(100, 5), StepRow(1, 7)]
    assert PRIOR.scaled(3.0).predict_ns(rows) == pytest.approx(3 * PRIOR.predict_ns(rows))
    assert PRIOR.scaled(3.0).ridge_tokens == PRIOR.ridge_tokens


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("token_ns", -1.0, "token_ns must be finite and >= 0, not -1.0"),
        ("fixed_ns", float("nan"), "fixed_ns must be finite"),
        ("ridge_tokens", float("inf"), "ridge_tokens must be finite"),
        ("read_ns", 0.0, "cannot take less than one pair"),
        ("ridge_softness", 1.01, "ridge_softness must be between 0 and 1"),
        ("launch_ns", -1.0, "launch_ns must be finite"),
        ("confidence", 1.01, "confidence must be between 0 and 1"),
    ],
)
def test_impossible_coefficients_are_refused(name: str, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        msgspec.structs.replace(ENGINE, **{name: value})


def test_reading_that_others_save_a_row_is_neither_predicted_nor_charged() -> None:
    saved, plain = StepRow(1, 1000, shared=400), StepRow(1, 600)
    assert ENGINE.predict_ns([saved, saved]) == ENGINE.predict_ns([plain, plain])
    assert ENGINE.weights([saved, plain]) == ENGINE.weights([plain, saved])
    assert sum(ENGINE.weights([saved, plain])) == pytest.approx(ENGINE.predict_ns([saved, plain]))
