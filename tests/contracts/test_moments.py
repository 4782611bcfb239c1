"""Moments as integers, to the last microsecond a datetime holds."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.recording.moments import EPOCH, unix_ns


@settings(max_examples=80, deadline=None)
@given(
    st.datetimes(
        min_value=datetime(1, 1, 2), timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))])
    )
)
def test_a_moment_is_exact_in_every_time_zone(moment):
    assert EPOCH + timedelta(microseconds=unix_ns(moment) // 1_000) == moment
    assert unix_ns(moment) % 1_000 == 0


def test_known_moments():
    assert unix_ns(EPOCH) == 0
    assert unix_ns(datetime(2026, 11, 2, 12, 0, 0, 123_457, tzinfo=UTC)) == 1_793_620_800_123_457_000
    assert unix_ns(EPOCH - timedelta(microseconds=1)) == -1_000


def test_a_moment_without_a_time_zone_is_refused():
    with pytest.raises(TypeError, match="naive"):
        unix_ns(datetime(2026, 11, 2))
