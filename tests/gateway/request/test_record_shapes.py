"""Shapes of records outlive the plans that ask for them, and are those of just the records they are asked for."""

import pytest
from msgspec.structs import replace

from contracts.metering.usage import Usage
from contracts.recording.records import decode_record
from gateway.request.plans.record_shapes import VARYING, KeptShapes, RecordShape
from tests.gateway.request.example import EXAMPLE

OTHERS = [
    replace(EXAMPLE, price_version="card/2"),
    replace(EXAMPLE, who=replace(EXAMPLE.who, key_id="key_2")),
    replace(EXAMPLE, priority="batch"),
    replace(EXAMPLE, replica="b"),
]


def test_records_that_say_the_same_share_their_shapes():
    kept = KeptShapes()
    assert kept.of(EXAMPLE) is kept.of(replace(EXAMPLE))


@pytest.mark.parametrize("other", OTHERS)
def test_records_that_differ_in_anything_do_not(other):
    kept = KeptShapes()
    mine, its = kept.of(EXAMPLE), kept.of(other)
    assert mine is not its
    assert (mine, its) == (kept.of(EXAMPLE), kept.of(other))


def test_those_not_asked_for_the_longest_go_first():
    kept = KeptShapes(2)
    first, second = kept.of(EXAMPLE), kept.of(OTHERS[0])
    assert kept.of(EXAMPLE) is first
    kept.of(OTHERS[1])
    assert kept.of(EXAMPLE) is first
    assert kept.of(OTHERS[0]) is not second


def test_a_shape_packs_what_varies_into_what_its_example_says():
    usage = Usage(input_text=3, output_text=4)
    shape = RecordShape(EXAMPLE)
    made = replace(
        EXAMPLE,
        request_id=b"i" * 16,
        started_at_ns=5,
        duration_ns=6,
        who=EXAMPLE.who.with_caller("ada", {"feature": "search"}),
        stream=True,
        usage=usage,
        trace_id=b"t" * 16,
        span_id=b"s" * 8,
        run_id="run",
        conversation_id="talk",
        priority="batch",
        charge_offsets_ns=[0],
    )
    assert decode_record(shape.template.pack(tuple(getattr(made, name) for name in VARYING))) == made
    assert decode_record(shape.packed) == EXAMPLE
