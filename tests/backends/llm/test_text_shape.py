"""Chunks that are known by their bytes: what is taken so is what a parser would have read, whatever comes between."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.http_client.http_connection import Connection
from backends.http_client.http_origin import Origin
from backends.http_client.http_pool import HttpPool
from backends.llm.answer_reader import only_delta
from backends.llm.http.http_reply import ReplyReader
from backends.llm.http.http_settings import read_timeouts
from backends.llm.http.text_shape import TextShape
from contracts.api.chat import ChatRequest, Message
from contracts.serving.configuration import TargetSpec
from tests.backends.askers import AsTold
from tests.backends.llm.conftest import MemorySink

SPEC = TargetSpec(id="u1", pool="p", kind="openai_http", url="http://a/v1")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(delta, *, is_ascii=True, **more):
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": more.pop("finish", None)}
    said = {"id": "x", "created": 1, "model": "m", "choices": [choice], **more}
    return b"data: " + json.dumps(said, ensure_ascii=is_ascii).encode() + b"\n\n"


def framed(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


class Told(MemorySink):
    """A sink that is told of every event."""


class Relaying(MemorySink):
    """A sink that takes chunks as they come."""

    def __init__(self):
        super().__init__()
        self.relayed = []

    def relay(self, delta):
        return self.relayed.append


class Wire:
    """The transport of a connection that nobody sends through."""

    def is_closing(self):
        return False

    def write(self, data):
        pass

    def writelines(self, pieces):
        pass

    def abort(self):
        pass


def talk(sink):
    """Return a connection whose reply goes to a sink, its reader, and how it ended."""
    connection = Connection(HttpPool(Origin.parse("http://a"), read_timeouts(SPEC)), lambda: 1.0)
    ends: list[Exception | None] = []
    connection.connection_made(Wire())  # type: ignore[arg-type]
    request = ChatRequest(model="m", messages=[Message(role="user", content="Hi")], stream=True)
    reader = ReplyReader(SPEC, sink, request)
    connection.send(b"", b"", reader, AsTold(ends), is_reused=False)
    return connection, reader, ends


def shape_of(learned):
    """Return the shape of an event that has one."""
    shape = TextShape.learn(learned, only_delta)
    assert shape is not None
    return shape


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
WORDS = TEXTS.filter(lambda text: not has_several(text))


def has_several(text):
    """Return whether a chunk's text may hold several words: it is read, and its tokens counted."""
    return " " in text[1:-1] or "\\n" in json.dumps(text)[2:-2]  # so is what looks like a line break's escape


@given(WORDS.filter(bool), TEXTS, st.sampled_from(["content", "reasoning_content", "reasoning"]), st.booleans())
def test_another_text_in_the_same_place_is_what_the_parser_reads(first, second, field, escapes):
    learned, other = (event({field: text}, is_ascii=escapes) for text in (first, second))
    shape = shape_of(learned)
    sink = Told()
    shape.pass_to(sink)
    is_taken = bool(second) and not has_several(second)
    assert shape.take(framed(other)) == is_taken
    if is_taken:
        assert sink.deltas == [only_delta(other)]
        assert sink.events == [other]


@given(WORDS.filter(bool), TEXTS, st.text("abcXYZ09", max_size=12), st.text("abcXYZ09", max_size=12), st.booleans())
def test_what_fills_a_chunk_up_may_be_another_each_time(first, second, filling, other_filling, escapes):
    learned = event({"content": first}, usage=None, obfuscation=filling, is_ascii=escapes)
    other = event({"content": second}, usage=None, obfuscation=other_filling, is_ascii=escapes)
    shape = shape_of(learned)
    sink = Told()
    shape.pass_to(sink)
    is_taken = bool(second) and not has_several(second)
    assert shape.take(framed(other)) == is_taken
    assert (sink.events, sink.deltas) == (([other], [only_delta(other)]) if is_taken else ([], []))


@pytest.mark.parametrize(
    ("filling", "other"),
    [
        (b'"obfuscation": "ab"', b'"obfuscation": 7'),
        (b'"obfuscation": "ab"', b'"obfuscation": "ab", "error": {"message": "no"}, "x": "y"'),
        (b'"obfuscation": "ab"', b'"obfuscation": "a\x01"'),
        (b'"obfuscation": "ab"', b'"other": "ab"'),
    ],
)
def test_a_filling_is_one_string_and_nothing_more(filling, other):
    learned = event({"content": "a"}, obfuscation="ab")
    assert filling in learned
    shape = shape_of(learned)
    sink = Told()
    shape.pass_to(sink)
    assert not shape.take(framed(learned.replace(filling, other))) and not sink.events
    assert shape.take(framed(learned))


@pytest.mark.parametrize(
    "other",
    [
        event({"content": "a"}, finish="stop"),
        event({"content": "a"}, usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}),
        event({"content": "a"}, model="n"),
        event({"role": "assistant", "content": "a"}),
        event({"content": ["a"]}),
        event({"content": None}),
        event({"content": ""}),
        event({"content": "a"}).replace(b'"a"', b'"a","content":"b"'),
        event({"content": "a"}).replace(b'"a"', b'"a'),
        event({"content": "a"}).replace(b'"a"', b'"\x01"'),
        event({"content": "a"}).replace(b'"a"', b'"\xff"'),
        event({"content": "a"}).replace(b'"a"', b'"\\u12"'),
        event({"content": "a"}).replace(b"\n\n", b"\n"),
        event({"content": "a"}) + event({"content": "b"}),
        b"data: [DONE]\n\n",
        b": keep alive\n\n",
    ],
)
def test_what_is_of_another_shape_is_left_to_the_parser(other):
    shape = shape_of(event({"content": "x"}))
    sink = Told()
    shape.pass_to(sink)
    assert not shape.take(framed(other)) and not sink.events


@pytest.mark.parametrize(
    "data",
    [
        framed(event({"content": "a"}))[:-1],
        framed(event({"content": "a"})) + b"0",
        framed(event({"content": "a"}))[1:],
        framed(event({"content": "a"})).replace(b"\r\n", b";x=1\r\n", 1),
        b"0" + framed(event({"content": "a"})),
        event({"content": "a"}),
        b"",
        b"\r\n",
        b"0\r\n\r\n",
    ],
)
def test_what_is_not_one_whole_chunk_is_left_to_the_parser(data):
    shape = shape_of(event({"content": "x"}))
    sink = Told()
    shape.pass_to(sink)
    assert not shape.take(data) and not sink.events


@pytest.mark.parametrize(
    "learned",
    [
        event({"content": "a"}, finish="stop"),
        event({"content": ""}),
        event({"content": "a", "reasoning": "b"}),
        event({"content": "a", "refusal": "b"}),
        event({"content": "a", "tool_calls": [{"index": 0}]}),
        event({"content": "a"}, usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}),
        event({"content": "a"}, error={"message": "no"}),
        b'data: {"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"},"index":1}]}\n\n',
        b"data: [DONE]\n\n",
        b"data: {\n\n",
    ],
)
def test_what_carries_more_than_one_text_has_no_shape(learned):
    assert TextShape.learn(learned, only_delta) is None


@pytest.mark.parametrize("size", [14, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097, 70_000])
def test_chunks_of_every_length_are_known(size):
    shape = shape_of(event({"content": "x"}))
    sink = Told()
    shape.pass_to(sink)
    least = len(event({"content": ""}))
    other = event({"content": "a" * max(size - least, 1)})
    assert shape.take(framed(other)) and sink.events == [other]


STREAM = [
    event({"role": "assistant", "content": ""}),
    event({"content": "Hel"}),
    event({"content": "lo"}),
    event({"content": 'a "quote" \\ and\nmore'}),
    event({"content": "\u4e16\u754c"}, is_ascii=False),
    event({"reasoning_content": "hm"}),
    event({"reasoning_content": "hm, hm"}),
    b": keep alive\n\n",
    event({"content": "x"}),
    event({"content": "y"}),
    event({"content": "z" * 300}),
    event({"content": "!"}, finish="stop"),
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":9,"total_tokens":12}}\n\n',
    b"data: [DONE]\n\n",
]


def read(pieces, sink):
    connection, reader, ends = talk(sink)
    for piece in pieces:
        connection.data_received(piece)
    assert ends == [None]
    return reader.result()


@settings(max_examples=60)
@given(st.data())
def test_a_stream_is_read_alike_wherever_it_is_cut(data):
    whole = HEAD + b"".join(map(framed, STREAM)) + b"0\r\n\r\n"
    by_chunk = [HEAD, *map(framed, STREAM), b"0\r\n\r\n"]
    cuts = sorted({0, len(whole), *data.draw(st.lists(st.integers(0, len(whole)), max_size=12))})
    at_once, in_chunks, cut = Told(), Told(), Told()
    expected = read([whole], at_once)
    assert read(by_chunk, in_chunks) == read([whole[a:b] for a, b in pairwise(cuts)], cut) == expected
    assert in_chunks.deltas == cut.deltas == at_once.deltas
    assert in_chunks.events == cut.events == at_once.events


def test_chunks_are_relayed_in_their_framing_from_the_third_on():
    sink = Relaying()
    read([HEAD, *map(framed, STREAM), b"0\r\n\r\n"], sink)
    assert framed(STREAM[2]) in sink.relayed and framed(STREAM[4]) in sink.relayed
    assert b"".join(sink.relayed).count(b"data: ") + len(sink.events) + len(sink.usage_events) == len(STREAM) - 2


def test_a_fault_of_whoever_takes_a_chunk_ends_the_reply_and_not_the_loop():
    class Broken(Relaying):
        def relay(self, delta):
            def take(chunk):
                raise RuntimeError("a bug")

            return take

    connection, _, ends = talk(Broken())
    for piece in (HEAD, *map(framed, STREAM[:3])):
        connection.data_received(piece)
    assert isinstance(ends[0], RuntimeError)  # ours, and not blamed on the target


@pytest.mark.interpreted
def test_a_stream_of_ever_other_chunks_is_not_learned_from_for_ever(monkeypatch):
    lessons = []
    learn = TextShape.learn

    def counted(*given):
        lessons.append(given)
        return learn(*given)

    monkeypatch.setattr(TextShape, "learn", counted)
    sink = Told()
    pieces = [framed(event({"content": "a"}, created=number)) for number in range(50)]
    connection, _, _ = talk(sink)
    for piece in (HEAD, *pieces):
        connection.data_received(piece)
    assert len(sink.events) == 50 and len(lessons) == 4


def test_a_stream_whose_chunks_are_alike_by_turns_goes_on_being_learned_from():
    sink = Relaying()
    pieces = [framed(event({("content", "reasoning_content")[number // 4 % 2]: "a"})) for number in range(80)]
    connection, _, _ = talk(sink)
    for piece in (HEAD, *pieces):
        connection.data_received(piece)
    assert (len(sink.events), len(sink.relayed)) == (21, 59), "the first of all, and of each four the first"


def test_a_chunk_that_is_known_begins_the_time_between_pieces_anew():
    connection, _, ends = talk(Told())
    now = [1.0]
    connection._time = lambda: now[0]
    for piece in (HEAD, *map(framed, STREAM[:2])):
        connection.data_received(piece)
    now[0] = 50.0
    connection.data_received(framed(STREAM[2]))
    between = connection.pool.timeouts.between
    connection.expire(50.0 + between - 0.001)
    assert not ends
    connection.expire(50.0 + between)
    assert ends
