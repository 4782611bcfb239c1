"""Shapes of records outlive the plans that ask for them, and are those of just the records they are asked for."""

import pytest
from msgspec.structs import replace

from gateway.request.plans.record_shapes import KeptShapes
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
