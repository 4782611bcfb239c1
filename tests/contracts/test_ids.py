"""Ids are UUIDv7: they say their version, carry their time and sort by it."""

import time
from uuid import RFC_4122, UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.recording.ids import IdSource, sibling_of, unix_ms_of, uuid7

SOME = settings(max_examples=100, deadline=None)
TIMES_NS = st.integers(0, (2**48 - 1) * 1_000_000 + 999_999)


@SOME
@given(TIMES_NS)
def test_an_id_bears_version_seven_and_the_rfcs_variant(unix_ns):
    made = uuid7(unix_ns)
    assert (made.version, made.variant) == (7, RFC_4122)
    assert made.bytes[6] >> 4 == 0b0111
    assert made.bytes[8] >> 6 == 0b10


@SOME
@given(TIMES_NS)
def test_an_id_carries_its_millisecond(unix_ns):
    assert unix_ms_of(uuid7(unix_ns)) == unix_ns // 1_000_000


@SOME
@given(TIMES_NS, TIMES_NS)
def test_ids_of_different_milliseconds_sort_by_time_in_every_form(one_ns, other_ns):
    earlier, later = sorted((one_ns, other_ns))
    if earlier // 1_000_000 == later // 1_000_000:
        return
    first, second = uuid7(earlier), uuid7(later)
    assert first < second
    assert first.bytes < second.bytes
    assert first.hex < second.hex


def test_ids_of_one_moment_differ_in_all_their_random_bits():
    now = time.time_ns()
    made = [uuid7(now) for _ in range(400)]
    assert len(set(made)) == 400
    fixed = (0xFFFF_FFFF_FFFF << 80) | (0xF << 76) | (0x3 << 62)
    ones = zeros = 0
    for identifier in made:
        ones |= identifier.int
        zeros |= ~identifier.int & (2**128 - 1)
    assert (ones & zeros) | fixed == 2**128 - 1
    assert ones & zeros & fixed == 0


def test_the_rfcs_example_reads_as_its_time():
    # RFC 9562, appendix A.6: 2022-02-22 14:22:22 -05:00
    assert unix_ms_of(UUID("017F22E2-79B0-7CC3-98C4-DC0C0C07398F")) == 1_645_557_742_000


@SOME
@given(TIMES_NS, st.integers(1, 10_000))
def test_the_ids_of_a_requests_parts_are_as_it_is_and_each_is_another(unix_ns, place):
    whole = uuid7(unix_ns)
    part = sibling_of(whole, place)
    assert sibling_of(whole, 0) == whole != part != sibling_of(whole, place + 1)
    assert (part.version, part.variant, unix_ms_of(part)) == (7, RFC_4122, unix_ms_of(whole))


def test_the_last_of_all_ids_has_siblings_too():
    last = UUID(int=uuid7(0).int | (1 << 62) - 1)
    assert sibling_of(last, 1).variant == RFC_4122 and sibling_of(last, 1) != last


@SOME
@given(st.lists(TIMES_NS, min_size=1, max_size=300))
def test_a_source_makes_the_same_kind_of_id_as_bytes_and_as_text(times_ns):
    source = IdSource()
    made = [source.next(unix_ns) for unix_ns in times_ns]
    for (packed, text), unix_ns in zip(made, times_ns, strict=True):
        read = UUID(text)
        assert read.bytes == packed
        assert str(read) == text
        assert (read.version, read.variant, unix_ms_of(read)) == (7, RFC_4122, unix_ns // 1_000_000)
    assert len(set(made)) == len(made)


def test_what_is_made_ahead_is_used_once_and_no_more_is_made_than_is_wanted():
    source = IdSource()
    made = []
    for _ in range(200):
        source.refill()
        made.append(source.next(1_700_000_000_000_000_000))
    assert len(set(made)) == len(made)
    assert all(UUID(text).bytes == packed for packed, text in made)
