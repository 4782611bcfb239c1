"""Server-sent events out of any pieces: the same events, the same bytes."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.llm.http.sse import MAX_EVENT_BYTES, MAX_EVENTS, EventSplitter, data_of
from contracts.errors import UpstreamBroken

LINE = st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"]), max_size=8).map(str.encode)
FIELD = st.tuples(st.sampled_from([b"data:", b"data: ", b"event: ", b": ", b"id:", b""]), LINE).map(b"".join)
END = st.sampled_from([b"\n", b"\r\n"])


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """One event: a line or more, each with its own line end, and the empty line."""
    lines = draw(st.lists(FIELD.filter(bool), min_size=1, max_size=4))
    return b"".join(line + draw(END) for line in lines) + draw(END)


def split(pieces: list[bytes]) -> list[bytes]:
    splitter = EventSplitter()
    found = [event for piece in pieces for event in splitter.feed(piece)]
    assert splitter.rest == b""
    return found


@given(st.lists(events(), max_size=6), st.data())
def test_any_way_of_cutting_the_bytes_gives_the_same_events(wanted, data):
    stream = b"".join(wanted)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert split(pieces) == split([stream]) == wanted


@given(events())
def test_every_byte_may_come_alone(event):
    assert split([bytes([byte]) for byte in event]) == [event]


@given(events())
@example(b"data:[DONE]\n:\n\n")
@example(b"data:a\nx\n\n")
@example(b"data: {}\r\n\r\n")
def test_data_is_what_the_data_lines_hold(event):
    lines = [line for line in event.replace(b"\r\n", b"\n").split(b"\n") if line.startswith(b"data:")]
    assert data_of(event) == b"\n".join(line[5:].removeprefix(b" ") for line in lines).strip()


def test_an_unfinished_event_is_held_back_and_shown():
    splitter = EventSplitter()
    assert splitter.feed(b"data: 1\n\ndata: 2\n") == [b"data: 1\n\n"]
    assert splitter.rest == b"data: 2"
    assert splitter.feed(b"\n") == [b"data: 2\n\n"]
    assert splitter.rest == b""


@pytest.mark.parametrize(("size", "refused"), [(MAX_EVENT_BYTES, False), (MAX_EVENT_BYTES + 1, True)])
def test_an_event_is_held_to_its_size(size, refused):
    splitter = EventSplitter()
    half = b"x" * (size // 2)
    splitter.feed(half)
    if refused:
        with pytest.raises(UpstreamBroken, match=str(MAX_EVENT_BYTES)):
            splitter.feed(b"x" * (size - len(half)))
    else:
        assert splitter.feed(b"x" * (size - len(half))) == []


@given(st.lists(events(), min_size=1, max_size=4), st.integers(1, 9))
def test_lines_may_end_with_cr_alone_and_a_byte_order_mark_stand_before_them(wanted, size):
    in_cr = [event.replace(b"\r\n", b"\n").replace(b"\n", b"\r") for event in wanted]
    for stream, expected in ((b"".join(in_cr), in_cr), (b"\xef\xbb\xbf" + b"".join(wanted), wanted)):
        pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
        assert split(pieces) == expected
    assert [data_of(event) for event in in_cr] == [data_of(event) for event in wanted]


@pytest.mark.parametrize("event", [b"\n\n", b": x\n\n", b"data: {}\n\n"])
def test_thousands_of_events_in_one_piece_are_no_answer(event):
    splitter = EventSplitter()
    assert len(splitter.feed(b"data: 1\n\n" + event * (MAX_EVENTS - 1))) == MAX_EVENTS
    with pytest.raises(UpstreamBroken, match="events in one piece"):
        splitter.feed(event * (MAX_EVENTS + 1))
