"""What a line that was refused or failed waits for, and what it does not."""

import pytest

from contracts.errors import (
    BudgetExhausted,
    ClientGone,
    EngineUnavailable,
    InvalidRequest,
    JournalFull,
    LimitExceeded,
    QueueFull,
    UpstreamBroken,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
)
from gateway.apis.batches.line_retries import LineRetries


@pytest.mark.parametrize(
    "error",
    [
        LimitExceeded("full", retry_after_seconds=7.5),
        UpstreamRateLimited("full", retry_after_seconds=7.5),
        JournalFull("full", retry_after_seconds=7.5),
    ],
)
def test_who_is_told_when_to_come_back_comes_back_then_however_often(error):
    patience = LineRetries()
    assert [patience.wait_after(error) for _ in range(100)] == [7.5] * 100


@pytest.mark.parametrize("error", [QueueFull("shed"), EngineUnavailable("away")])
def test_what_cost_nothing_is_tried_on_at_growing_intervals(error):
    patience = LineRetries()
    waits = [patience.wait_after(error) for _ in range(20)]
    assert waits[:4] == [1, 2, 4, 8] and waits[-1] == 60 and None not in waits


@pytest.mark.parametrize("error", [UpstreamBroken("cut"), UpstreamTimeout("late")])
def test_what_failed_at_a_model_is_tried_three_times(error):
    patience = LineRetries()
    assert [patience.wait_after(error) for _ in range(3)] == [1, 2, None]


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequest("wrong"),
        UpstreamRejected("wrong"),
        BudgetExhausted("spent", retry_after_seconds=60),
        LimitExceeded("this request can never fit"),
        ClientGone("left"),
    ],
)
def test_what_no_wait_mends_is_the_line_s_result(error):
    assert LineRetries().wait_after(error) is None
