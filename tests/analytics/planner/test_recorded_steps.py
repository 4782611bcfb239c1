"""The planner against recorded GPU runs: predicted from other runs' steps, within 15 % of what the GPU took."""

import pytest

from bench.gpu_steps import RecordedStep, read_runs
from bench.planner_recorded import RECORDED, RecordedRun


@pytest.fixture(scope="module")
def runs() -> dict[str, list[RecordedStep]]:
    return read_runs()


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda run: run.name)
def test_a_recorded_run_is_predicted_from_the_others(
    recorded: RecordedRun, runs: dict[str, list[RecordedStep]]
) -> None:
    outcome = recorded.predicted(runs)
    assert outcome.served == recorded.requests
    assert outcome.seconds == pytest.approx(recorded.wall_seconds, rel=0.15)
    assert outcome.gap_ms is not None
    assert outcome.gap_ms.p50 == pytest.approx(recorded.gap_p50_ms, rel=0.15)
