"""A record of which all is known is packed by one format, and reads as the record itself."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from contracts.records import RequestRecord, decode_record, event_name_of
from contracts.usage import MAX_TOKENS_PER_LEAF, Usage
from gateway.lane import plain_record
from gateway.lane.plain_record import PlainRecords
from tests.gateway.lane.example import EXAMPLE

TIME = st.integers(0, 2**63 - 1)
TOKENS = st.integers(0, MAX_TOKENS_PER_LEAF)
WORDING = st.tuples(
    st.text(max_size=40),
    st.text(max_size=300),
    st.none() | st.integers(0, 2**40),
    st.integers(1, 128),
    st.none() | st.floats(0, 2),
)
COUNTS = st.tuples(TIME, TIME, TIME, TOKENS, TOKENS, TIME, TIME, TIME, TIME, TOKENS, TOKENS)


def record_of(wording: Any, request_id: bytes, counts: tuple[int, ...]) -> RequestRecord:
    """Give the record that these make, with nothing left to the packing."""
    finish_reason, model_version, max_tokens, choices, temperature = wording
    started, duration, admission, tokens_in, tokens_out, cost, charged, bytes_in, bytes_out, reserved, tokens = counts
    return replace(
        EXAMPLE,
        request_id=request_id,
        started_at_ns=started,
        duration_ns=duration,
        finish_reason=finish_reason,
        model_version=model_version,
        admission_ns=admission,
        usage=Usage(input_text=tokens_in, output_text=tokens_out),
        cost_pico_usd=cost,
        charged_pico_usd=charged,
        max_tokens=max_tokens,
        choices=choices,
        temperature=temperature,
        request_bytes=bytes_in,
        response_bytes=bytes_out,
        reserved_tokens=reserved,
        charge_offsets_ns=[0],
        charge_tokens=[tokens],
        overdraft_tokens=0,
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(WORDING, st.binary(min_size=16, max_size=16), COUNTS), min_size=1, max_size=6))
def test_what_is_packed_reads_as_the_record_would(requests: list[tuple[Any, bytes, tuple[int, ...]]]) -> None:
    records = PlainRecords(EXAMPLE)
    for wording, request_id, counts in (*requests, *requests):  # each wording is met again, after others
        packed = records.pack(wording, request_id, *counts) or records.pack(wording, request_id, *counts)
        assert packed is not None and event_name_of(packed) == "tollkeeper.request"
        assert decode_record(packed) == record_of(wording, request_id, counts)


PLAIN = ("stop", "m-1", 64, 1, 0.7)
FEW = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)


@pytest.mark.parametrize("place", range(len(FEW)))
def test_a_count_of_more_than_eight_bytes_or_below_zero_is_not_packed(place):
    records = PlainRecords(EXAMPLE)
    assert records.pack(PLAIN, bytes(16), *FEW) is None, "met for the first time"
    for count, fits in ((2**63 - 1, True), (2**64 - 1, True), (2**64, False), (0, True), (-1, False)):
        counts = (*FEW[:place], count, *FEW[place + 1 :])
        assert (records.pack(PLAIN, bytes(16), *counts) is not None) is fits


def test_wordings_are_kept_up_to_a_bound_and_those_known_are_still_packed():
    records = PlainRecords(EXAMPLE)
    most = plain_record._MOST_FORMATS
    wordings = [("stop", "m-1", number, 1, 0.7) for number in range(most + 1)]
    packed = [[records.pack(one, bytes(16), *FEW) is not None for _ in range(2)] for one in wordings]
    assert packed == [[False, True]] * most + [[False, False]]
    assert records.pack(wordings[3], bytes(16), *FEW) is not None


def is_packed(records: PlainRecords, max_tokens: int) -> bool:
    return records.pack(("stop", "m-1", max_tokens, 1, 0.7), bytes(16), *FEW) is not None


def pack_each_twice(records: PlainRecords, count: int) -> None:
    """Make the formats of so many wordings."""
    for number in range(count):
        assert [is_packed(records, number) for _ in range(2)] == [False, True]


def test_room_is_made_by_forgetting_what_was_not_used_meanwhile():
    records = PlainRecords(EXAMPLE)
    most = plain_record._MOST_FORMATS
    pack_each_twice(records, most - 1)
    records.make_room()
    records.make_room()
    assert is_packed(records, 0), "as long as there is room nothing is forgotten"
    assert [is_packed(records, most) for _ in range(3)] == [False, True, True]
    assert [is_packed(records, most + 1) for _ in range(2)] == [False, False]
    records.make_room()  # 0 and the last were used since
    assert [is_packed(records, number) for number in (0, most)] == [True, True]
    assert not is_packed(records, 1)
    assert [is_packed(records, most + 1) for _ in range(2)] == [False, True]
    assert decode_record(records.pack(PLAIN, bytes(16), *FEW) or records.pack(PLAIN, bytes(16), *FEW) or b"") == (
        record_of(PLAIN, bytes(16), FEW)
    )


def test_a_wording_that_goes_on_is_not_forgotten_though_nothing_else_comes():
    records = PlainRecords(EXAMPLE)
    pack_each_twice(records, plain_record._MOST_FORMATS)
    last = plain_record._MOST_FORMATS - 1
    for _ in range(3):
        records.make_room()
        assert is_packed(records, last)


def test_one_that_went_on_counts_as_used_once_another_comes():
    records = PlainRecords(EXAMPLE)
    most = plain_record._MOST_FORMATS
    pack_each_twice(records, most)
    records.make_room()  # all were used: the oldest goes
    assert is_packed(records, most - 1)
    assert [is_packed(records, most) for _ in range(2)] == [False, True]
    records.make_room()
    assert [is_packed(records, number) for number in (most - 1, most, 1)] == [True, True, False]


def test_those_that_came_first_do_not_shut_out_all_others_for_good():
    records = PlainRecords(EXAMPLE)
    most = plain_record._MOST_FORMATS
    pack_each_twice(records, most)
    assert [is_packed(records, most) for _ in range(2)] == [False, False]
    records.make_room()
    assert [is_packed(records, number) for number in range(1, most)] == [True] * (most - 1)
    assert [is_packed(records, most) for _ in range(2)] == [False, True]


def test_a_temperature_of_nought_and_none_are_told_apart():
    records = PlainRecords(EXAMPLE)
    for temperature in (0.0, None, 1.0, 0.0):
        wording = ("stop", "m-1", 64, 1, temperature)
        packed = records.pack(wording, bytes(16), *FEW) or records.pack(wording, bytes(16), *FEW)
        assert packed is not None
        assert decode_record(packed) == record_of(wording, bytes(16), FEW)
