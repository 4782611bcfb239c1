"""An engine that has become slow without saying so is noticed, and one that merely has other work is not."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.gpu_time.step_fit import fit
from algorithms.gpu_time.step_model import StepRow, compose
from backends.engine.pace import Pace
from contracts.recording.records import StepRecord

TOKEN_NS, FIXED_NS = 2_000, 4_000_000


def step(requests: int, slowness: float = 1.0, *, scheduled: int = 1, **other: object) -> StepRecord:
    record = StepRecord(
        engine="e",
        sequence=1,
        started_at_ns=0,
        busy_ns=round((FIXED_NS + TOKEN_NS * max(requests * scheduled, 200)) * slowness),
        devices=["GPU-1"],
        scheduled=[scheduled] * requests,
        context=[50] * requests,
    )
    return msgspec.structs.replace(record, **other)


def well(**options: int | float) -> Pace:
    """Return one that has its reference."""
    pace = Pace(reference_steps=64, window_steps=8, windows=3, **options)  # type: ignore[arg-type]  # the test's
    pace.see([step(requests) for requests in (4, 8, 16, 32) for _ in range(16)])
    pace.adopt(fit(pace.samples))
    return pace


def test_there_is_nothing_to_judge_by_before_the_first_steps() -> None:
    pace = Pace(reference_steps=64)
    pace.see([step(4)] * 63)
    assert not pace.samples
    pace.see([step(4)])
    assert len(pace.samples) == 64
    assert (pace.has_reference, pace.ratio, pace.is_slow) == (False, None, False)


@pytest.mark.parametrize(("slowness", "is_slow"), [(1.0, False), (1.9, False), (2.2, True), (10.0, True)])
def test_slow_is_what_takes_more_than_the_limit_in_every_window(slowness: float, is_slow: bool) -> None:
    pace = well(limit=2.0)
    pace.see([step(8, slowness)] * 24)
    assert pace.ratio == pytest.approx(slowness, rel=0.1)
    assert pace.is_slow is is_slow


def test_two_slow_windows_are_a_burst() -> None:
    pace = well(limit=2.0)
    pace.see([step(8, 3.0)] * 16)
    assert not pace.is_slow
    pace.see([step(8)] * 8)
    pace.see([step(8, 3.0)] * 16)
    assert not pace.is_slow


def test_a_few_odd_steps_do_not_move_the_median() -> None:
    pace = well(limit=2.0)
    pace.see([step(8, 50.0), *[step(8)] * 7] * 3)
    assert not pace.is_slow


def test_work_of_a_kind_never_seen_is_not_judged() -> None:
    pace = well(limit=2.0)
    pace.see([step(1, 9.0, scheduled=8192)] * 24)
    assert pace.ratio is None


@pytest.mark.parametrize(
    "record",
    [
        step(8, 9.0, devices=["cpu"]),
        step(8, 9.0, devices=[]),
        step(8, 9.0, kind="idle"),
        StepRecord(engine="e", sequence=1, started_at_ns=0, busy_ns=10**9, devices=["GPU-1"]),
    ],
)
def test_what_says_nothing_of_a_gpu_is_passed_over(record: StepRecord) -> None:
    pace = well(limit=2.0)
    pace.see([record] * 24)
    assert pace.ratio is None


def test_after_a_pause_it_is_judged_afresh() -> None:
    pace = well(limit=2.0)
    pace.see([step(8, 3.0)] * 24)
    pace.forget()
    assert (pace.ratio, pace.is_slow, pace.has_reference) == (None, False, True)


def test_no_limit_calls_nothing_slow() -> None:
    pace = well(limit=0)
    pace.see([step(8, 99.0)] * 24)
    assert not pace.is_slow


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9999)), min_size=1, max_size=40))
def test_a_step_is_summed_up_as_the_step_model_does(rows: list[tuple[int, int]]) -> None:
    record = msgspec.structs.replace(
        step(1), scheduled=[scheduled for scheduled, _ in rows], context=[context for _, context in rows]
    )
    pace = Pace(reference_steps=1)
    pace.see([record])
    assert pace.samples[0].step == compose(StepRow(scheduled, context) for scheduled, context in rows)
