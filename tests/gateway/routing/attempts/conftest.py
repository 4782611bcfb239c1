"""Tries, rests and hedges go by time: here by that of the test's loop."""

import pytest


@pytest.fixture(autouse=True)
def by_the_loops_time(patient_clock: None) -> None:
    """Pauses, rests and budgets of tries pass in the time of the loop."""
