"""What an engine step may not say: lists that do not match, time that is not all charged, times below zero."""

import msgspec
import pytest

from contracts.errors import InvalidRecord
from contracts.recording.records import StepRecord, decode_record, encode_record

REQUEST_ID = bytes(range(16))
STEP_LISTS = (
    "tenants",
    "scheduled",
    "context",
    "cached",
    "phases",
    "recompute",
    "drafted",
    "accepted",
    "aborted",
    "gpu_ns",
)


def with_field(record, name, value):
    fields = msgspec.msgpack.decode(encode_record(record))
    fields[1 + type(record).__struct_fields__.index(name)] = value
    return msgspec.msgpack.encode(fields)


STEP = StepRecord(
    engine="e",
    sequence=0,
    started_at_ns=0,
    busy_ns=5,
    method="steptime-as/1",
    request_ids=[REQUEST_ID, REQUEST_ID],
    tenants=["acme", "globex"],
    scheduled=[1, 2],
    gpu_ns=[2, 3],
)


@pytest.mark.parametrize("name", STEP_LISTS)
def test_a_steps_lists_are_empty_or_have_one_entry_for_each_request(name):
    value = getattr(STEP, name) or ([False] * 2 if name == "aborted" else [0] * 2)
    for good in (value, []):
        if name != "gpu_ns" or good:
            assert getattr(decode_record(with_field(STEP, name, good)), name) == good
    for bad in (value[:1], value + value[:1]):
        with pytest.raises(InvalidRecord, match=f"a step of 2 requests has {len(bad)} entries in {name}"):
            decode_record(with_field(STEP, name, bad))


def test_a_split_step_charges_all_of_its_time_and_no_more():
    assert decode_record(encode_record(STEP)) == STEP
    for parts in ([2, 2], [2, 4], []):
        with pytest.raises(InvalidRecord, match=f"gpu_ns sum to {sum(parts)} ns of the 5 ns"):
            decode_record(with_field(STEP, "gpu_ns", parts))
    unsplit = msgspec.structs.replace(STEP, method="", gpu_ns=[])
    assert decode_record(encode_record(unsplit)) == unsplit
    nobody = StepRecord(engine="e", sequence=0, started_at_ns=0, busy_ns=5, method="steptime-as/1")
    assert decode_record(encode_record(nobody)) == nobody


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("busy_ns", -1),
        ("gap_ns", -1),
        ("forward_ns", -1),
        ("rank_skew_ns", -1),
        ("gpu_ns", [-1, 6]),
        ("request_ids", [REQUEST_ID, REQUEST_ID[:15]]),
    ],
)
def test_a_steps_times_and_ids_are_checked_too(name, value):
    with pytest.raises(InvalidRecord, match="`int` >= 0|length >= 16"):
        decode_record(with_field(STEP, name, value))
