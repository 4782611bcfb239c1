"""The engine wire's frames come out as they went in, however the bytes between were cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.engine.frame_splitter import MAX_FRAME_BYTES, FrameSplitter
from contracts.engine.wire import Abort, Delta, Finished, FromHost, frame, from_gateway, from_host
from contracts.errors import InvalidRecord

MESSAGES: list[FromHost] = [
    Delta(request_id=b"a" * 16, token_ids=list(range(300)), content="words " * 40),
    Finished(request_id=b"a" * 16, finish_reason="stop"),
    Delta(request_id=b"b" * 16, content="é"),
    Finished(request_id=b"b" * 16, finish_reason="length"),
]


@given(st.lists(st.integers(0, 4000), max_size=12))
def test_frames_come_out_whole_wherever_they_were_cut(cuts):
    sent = b"".join(map(frame, MESSAGES))
    places = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    splitter = FrameSplitter()
    bodies: list[bytes] = []
    for begin, end in zip(places, places[1:], strict=False):
        bodies += splitter.feed(sent[begin:end])
    assert [from_host(body) for body in bodies] == MESSAGES
    assert all(type(body) is bytes for body in bodies) and splitter.feed(b"") == []


def test_bytes_that_come_one_by_one_are_put_together():
    splitter = FrameSplitter()
    sent = frame(Abort(request_id=b"a" * 16)) * 2
    found = [body for place in range(len(sent)) for body in splitter.feed(sent[place : place + 1])]
    assert [from_gateway(body) for body in found] == [Abort(request_id=b"a" * 16)] * 2


@pytest.mark.parametrize("before", [b"", frame(MESSAGES[1]), frame(MESSAGES[1])[:3]])
def test_a_length_beyond_the_limit_is_refused_before_its_bytes_have_come(before):
    splitter = FrameSplitter()
    if len(before) == 3:
        splitter.feed(before)
        before = frame(MESSAGES[1])[3:]
    at_most, beyond = (length.to_bytes(4, "little") for length in (MAX_FRAME_BYTES, MAX_FRAME_BYTES + 1))
    assert FrameSplitter().feed(at_most) == []
    with pytest.raises(InvalidRecord):
        splitter.feed(before + beyond)
