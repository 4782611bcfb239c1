"""Gaps between tokens: their unit, their bounds, and how they travel."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import InvalidRecord
from contracts.metering.gaps import GAP_UNIT_NS, MAX_GAP_UNITS, gap_units, gaps_between, pack_gaps, unpack_gaps

MANY = settings(max_examples=150, deadline=None)


@pytest.mark.parametrize(
    ("gap_ns", "units"),
    [
        (-1, 0),  # a clock that steps back
        (-(10**12), 0),
        (0, 0),
        (4_999, 0),
        (5_000, 1),
        (14_999, 1),
        (15_000, 2),
        (10_000_000, 1_000),
        (MAX_GAP_UNITS * GAP_UNIT_NS - 5_001, MAX_GAP_UNITS - 1),
        (MAX_GAP_UNITS * GAP_UNIT_NS, MAX_GAP_UNITS),
        (2**32 * GAP_UNIT_NS, MAX_GAP_UNITS),
        (2**63 - 1, MAX_GAP_UNITS),
    ],
)
def test_gaps_are_rounded_to_the_nearest_unit_and_clamped(gap_ns, units):
    assert gap_units(gap_ns) == units


@MANY
@given(st.integers(0, MAX_GAP_UNITS * GAP_UNIT_NS))
def test_a_gap_is_never_off_by_more_than_half_a_unit(gap_ns):
    assert abs(gap_units(gap_ns) * GAP_UNIT_NS - gap_ns) <= GAP_UNIT_NS // 2


@MANY
@given(st.lists(st.integers(0, MAX_GAP_UNITS), max_size=300))
def test_packed_gaps_are_little_endian_and_come_back_as_they_were(gaps):
    packed = pack_gaps(gaps)
    assert packed == b"".join(gap.to_bytes(4, "little") for gap in gaps)
    assert unpack_gaps(packed) == gaps


def test_a_gap_that_no_column_holds_is_clamped_rather_than_lost_with_its_record():
    assert unpack_gaps(pack_gaps([-1, 3, MAX_GAP_UNITS, MAX_GAP_UNITS + 1])) == [0, 3, MAX_GAP_UNITS, MAX_GAP_UNITS]


@pytest.mark.parametrize("length", [1, 2, 3, 5, 7])
def test_gaps_that_end_in_the_middle_of_one_are_refused(length):
    with pytest.raises(InvalidRecord, match=f"packed gaps have {length} bytes"):
        unpack_gaps(bytes(length))


@given(st.lists(st.one_of(st.integers(0, 10**6), st.integers(0, 2**63)), min_size=1, max_size=6))
def test_gaps_between_moments_are_each_what_one_alone_would_be(times_ns):
    expected = [gap_units(later - earlier) for earlier, later in itertools.pairwise(times_ns)]
    assert gaps_between(times_ns) == expected


def test_moments_that_are_one_have_no_gaps_but_zeros():
    assert gaps_between([7]) == [] and gaps_between([7, 7, 7]) == [0, 0]
