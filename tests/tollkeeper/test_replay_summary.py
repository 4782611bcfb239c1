"""A run's figures, from answers made by hand."""

import dataclasses
from array import array
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tollkeeper.replay.chat import CANCELLED, Outcome
from tollkeeper.replay.summary import Setting, percentile_ms, summarise

SETTING = Setting(
    run_id="r",
    trace="t",
    format="azure",
    model="m",
    speed=1.0,
    scale_lengths=1.0,
    context_tokens=None,
    scaled_to_fit=0,
)


def outcome(number: int, *, ttft: float, gaps: Sequence[float], **fields: Any) -> Outcome:
    made = Outcome(number, "acme", 3, due_at=10.0, sent_at=10.0 + number / 100, gaps=array("f", gaps))
    made.first_at = made.sent_at + ttft
    made.last_at = made.done_at = made.first_at + sum(gaps)
    made.input_tokens, made.output_tokens = 5, 3
    return dataclasses.replace(made, **fields)


def test_a_summary_s_figures_are_those_of_its_outcomes() -> None:
    outcomes = [outcome(number, ttft=(number + 1) / 10, gaps=[0.01, 0.03]) for number in range(20)]
    failed = outcome(20, ttft=9.0, gaps=[5.0], error="upstream_broken")
    left = outcome(21, ttft=9.0, gaps=[], error=CANCELLED, done_at=0.0)
    summary = summarise(SETTING, [*outcomes, failed, left], began_at=10.0, most_in_flight=7, is_complete=True)
    assert (summary.requests, summary.ok, summary.errors, summary.cancelled) == (22, 20, 1, 1)
    assert (summary.tokens_in, summary.tokens_out, summary.tokens_out_wanted) == (100, 60, 60)
    assert (summary.ttft_ms_p50, summary.ttft_ms_p95) == (1000.0, 1900.0)
    assert (summary.itl_ms_p50, summary.itl_ms_p95) == (10.0, 30.0)
    assert summary.lateness_ms_max == 210.0
    assert summary.as_json()["run_id"] == "r" and "setting" not in summary.as_json()


def test_a_summary_of_nothing_has_no_percentiles() -> None:
    summary = summarise(SETTING, [], began_at=10.0, most_in_flight=0, is_complete=False)
    assert (summary.requests, summary.duration_s, summary.ttft_ms_p50, summary.lateness_ms_max) == (0, 0, None, None)


@given(values=st.lists(st.floats(0, 100), min_size=1), share=st.floats(0.01, 1.0))
def test_a_percentile_is_a_value_that_the_share_does_not_exceed(values: list[float], share: float) -> None:
    ascending = sorted(values)
    found = percentile_ms(ascending, share)
    assert found is not None
    covered = sum(round(value * 1000, 3) <= found for value in ascending)
    assert covered >= share * len(ascending) - 1e-9
