"""Shapes that outlive their streams: what is taken by one is what a parser would have read of that stream."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.http_client.http_connection import Connection
from backends.http_client.http_origin import Origin
from backends.http_client.http_pool import HttpPool
from backends.llm.answer_reader import only_delta
from backends.llm.http.http_reply import ReplyReader
from backends.llm.http.http_settings import read_timeouts
from backends.llm.http.known_shapes import KnownShapes
from backends.llm.http.text_shape import TextShape
from contracts.api.chat import ChatRequest, Message
from tests.backends.askers import AsTold
from tests.backends.llm.test_text_shape import HEAD, SPEC, Relaying, Told, Wire, event, framed

USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}\n\n'
DONE = b"data: [DONE]\n\n"


def taught(*events):
    """Return the shapes learned of events, each of another stream."""
    known = KnownShapes()
    for learned in events:
        shape = TextShape.learn(learned, only_delta)
        assert shape is not None
        known.keep(shape, learned, only_delta)
    return known


def answer(id, created, texts, first=None, **more):
    """Return a stream's events as OpenAI's servers have them: a role, texts, an end."""
    own = {"id": id, "created": created, **more}
    start = {"role": "assistant", "content": ""} if first is None else {"role": "assistant", "content": first}
    return [
        event(start, **own),
        *(event({"content": text}, **own) for text in texts),
        event({}, finish="stop", **own),
        USAGE,
        DONE,
    ]


def read(events, sink, known=None):
    """Let a sink have a stream, chunk by chunk; return its account."""
    connection = Connection(HttpPool(Origin.parse("http://a"), read_timeouts(SPEC)), lambda: 1.0)
    ends: list[Exception | None] = []
    connection.connection_made(Wire())  # type: ignore[arg-type]
    request = ChatRequest(model="m", messages=[Message(role="user", content="Hi")], stream=True)
    reader = ReplyReader(SPEC, sink, request, known)
    connection.send(b"", b"", reader, AsTold(ends), is_reused=False)
    for piece in (HEAD + framed(events[0]), *map(framed, events[1:]), b"0\r\n\r\n"):
        connection.data_received(piece)
    assert ends == [None]
    return reader.result()


IDS = st.text(st.characters(codec="utf-8"), max_size=12)
TIMES = st.one_of(st.integers(0, 2**40), st.floats(0, 1e9), st.none(), st.booleans())
TEXTS = st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=5)
STREAMS = st.tuples(IDS, TIMES, TEXTS, st.none() | st.text(max_size=4))


@settings(max_examples=100)
@given(st.lists(STREAMS, min_size=1, max_size=6))
def test_streams_that_share_shapes_are_read_as_streams_alone(streams):
    known = KnownShapes()
    for id, created, texts, first in streams:
        events = answer(id, created, texts, first)
        alone, sharing = Told(), Told()
        assert read(events, sharing, known) == read(events, alone)
        assert (sharing.events, sharing.deltas) == (alone.events, alone.deltas)


def test_the_second_stream_needs_no_lesson():
    known = KnownShapes()
    first, second, third = Relaying(), Relaying(), Relaying()
    read(answer("a", 1, ["x", "y", "z"]), first, known)
    events = answer("chatcmpl-2", 20, ["x", "y", "z"])
    read(events, second, known)
    assert first.relayed != second.relayed == [framed(one) for one in events[2:4]]
    events = answer("chatcmpl-3", 21, ["y", "z"], first="x")  # with its first chunk a text has come
    read(events, third, known)
    assert third.relayed == [framed(one) for one in events[1:3]]


@pytest.mark.parametrize(
    "changed",
    [
        event({"content": "a"}, id="t", created=2, model="another"),
        event({"content": "a"}, id="other", created=2),
        event({"content": "a"}, id="t", created=3),
        event({"content": "a"}, id="t", created=2, finish="stop"),
        event({"content": "a", "refusal": "b"}, id="t", created=2),
        event({"content": "a"}, id="t", created=2, error={"message": "no"}),
        event({"content": "a"}, id="t", created=2, usage={"prompt_tokens": 1, "completion_tokens": 1}),
    ],
)
def test_a_chunk_that_differs_by_a_byte_is_left_to_the_parser(changed):
    known = taught(event({"content": "a"}, id="s", created=1))
    shape = known.shape_for(event({"role": "assistant", "content": "x"}, id="t", created=2), is_whole=False)
    assert shape is not None
    sink = Told()
    shape.pass_to(sink)
    assert not shape.take(framed(changed)) and not sink.events
    expected = event({"content": "b"}, id="t", created=2)
    assert shape.take(framed(expected)) and sink.deltas == [only_delta(expected)]


@pytest.mark.parametrize(
    "other",
    [
        {"id": 'a"b', "created": 2},
        {"id": "\u4e16\u754c", "created": 2},  # written as \u...
        {"id": "t", "created": 2.5},
        {"id": "t", "created": None},
        {"id": None, "created": 2},
        {"id": "t" * 300, "created": 2},
    ],
)
def test_what_a_stream_has_of_its_own_is_filled_in_only_where_it_is_plain(other):
    known = taught(event({"content": "a"}, id="s", created=1))
    assert known.shape_for(event({"content": "a"}, **other), is_whole=False) is None


def test_a_whole_chunk_finds_the_shape_that_it_has_itself():
    known = taught(event({"content": "a"}, id="s"), event({"reasoning_content": "a"}, id="s"))
    for field in ("content", "reasoning_content", "content"):
        found = known.shape_for(event({field: "b"}, id="t"), is_whole=True)
        assert found is not None and bool(found.delta.reasoning) == (field == "reasoning_content")
    assert known.shape_for(event({"reasoning": "b"}, id="t"), is_whole=True) is None


def test_nothing_that_was_said_is_kept():
    known = taught(event({"content": "a-secret"}, id="s-of-them"), event({"reasoning": "a-secret"}, id="s-of-them"))
    found = known.shape_for(event({"content": "x"}, id="t"), is_whole=True)
    assert found is not None and "secret" not in found.delta.text
    for outline in known._outlines:
        kept = (outline._pieces, outline.shape.before, outline.shape.delta)
        assert "secret" not in repr(kept) and "of-them" not in repr(kept)


def test_filled_chunks_are_known_in_later_streams():
    known = taught(event({"content": "a"}, id="s", obfuscation="abc"))
    other = event({"content": "b"}, id="t", obfuscation="de")
    shape = known.shape_for(other, is_whole=True)
    assert shape is not None
    sink = Told()
    shape.pass_to(sink)
    assert shape.take(framed(other)) and sink.events == [other]


def test_shapes_that_no_later_stream_has_are_not_learned_for_ever():
    known = KnownShapes()
    for number in range(100):
        learned = event({"content": "a"}, system_fingerprint=f"fp_{number}")
        shape = TextShape.learn(learned, only_delta)
        assert shape is not None
        known.keep(shape, learned, only_delta)
    last = event({"content": "b"}, system_fingerprint="fp_99")
    assert known.shape_for(last, is_whole=True) is None, "64 in vain were enough"
    assert len(known._outlines) == 8
    early = event({"content": "b"}, system_fingerprint="fp_63")
    assert known.shape_for(early, is_whole=True) is not None
    shape = TextShape.learn(last, only_delta)
    assert shape is not None
    known.keep(shape, last, only_delta)
    assert known.shape_for(last, is_whole=True) is not None, "one was of use: there may be more"
