"""A head that is known stands for another one only where a parser would read the same of both, the length aside."""

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.http_client.http_head import LastHead

NAMES = st.sampled_from(["Host", "Accept", "X-A", "Content-Type", "Content-Length2", "X-Content-Length"])
LINES = st.lists(st.tuples(NAMES, st.text("abc ,:123", max_size=8)), max_size=5)


def message(body, lines=(), name="Content-Length", length=None):
    given = [*lines, (name, str(len(body) if length is None else length))]
    head = "".join(f"{key}: {value.strip()}\r\n" for key, value in given)
    return f"POST /v1/chat HTTP/1.1\r\n{head}\r\n".encode() + body


class Parsed:
    """What the parser reads of a message."""

    def __init__(self, data):
        self.headers, self.body, self.is_whole = [], b"", 0
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(data)

    def on_header(self, name, value):
        self.headers.append((name.lower(), value))

    def on_body(self, body):
        self.body += body

    def on_message_complete(self):
        self.is_whole += 1


@settings(max_examples=200, deadline=None)
@given(LINES, st.binary(max_size=300), st.binary(max_size=300), st.sampled_from(["Content-Length", "content-LENGTH"]))
def test_the_next_message_with_the_same_head_has_the_body_that_a_parser_finds(lines, first, second, name):
    last = LastHead()
    assert last.learn(message(first, lines, name))
    data = message(second, lines, name)
    parsed = Parsed(data)
    assert parsed.is_whole == 1
    assert last.body_of(data) == parsed.body == second
    same = [one for one in parsed.headers if one[0] != b"content-length"]
    assert same == [one for one in Parsed(message(first, lines, name)).headers if one[0] != b"content-length"]


@settings(max_examples=300, deadline=None)
@given(LINES, st.binary(max_size=50), st.integers(0, 200), st.binary(max_size=3))
def test_any_other_bytes_are_left_to_the_parser(lines, body, place, change):
    last = LastHead()
    original = message(body, lines)
    assert last.learn(original)
    end = original.index(b"\r\n\r\n") + 4
    place = min(place, end - 1)
    changed = original[:place] + change + original[place + 1 :]
    found = last.body_of(changed)
    if found is not None:  # then only the length may have changed, and it must be true
        parsed = Parsed(changed)
        assert parsed.is_whole == 1 and parsed.body == found


@pytest.mark.parametrize(
    "data",
    [
        message(b"abc")[:-1],
        message(b"abc") + b"d",
        message(b"abc") + message(b"abc"),
        message(b"abc", length="+3"),
        message(b"abc", length="3 "),
        message(b"abc", length="0x3"),
        message(b"abc", length="00000000003"),
        message(b"abc", length="9" * 2_000_000),  # whose value takes minutes to work out
        message(b"abc", length="0" * 2_000_000),
        message(b"abc", [("Transfer-Encoding", "chunked")]),
        b"",
        b"POST",
    ],
)
def test_a_message_that_is_not_just_that_is_left_to_the_parser(data):
    last = LastHead()
    assert last.learn(message(b"x"))
    if data != message(b"abc", length="3 "):  # which the builder strips
        assert last.body_of(data) is None


@pytest.mark.parametrize(
    "data",
    [
        message(b"abc", [("Content-Length", "3")]),
        message(b"abc", length=2),
        message(b"abc", length=4),
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_head_that_does_not_state_its_length_once_is_not_kept(data):
    last = LastHead()
    assert not last.learn(data)
    assert last.body_of(data) is None


def test_heads_that_always_differ_are_no_longer_kept_and_a_hit_begins_anew():
    last = LastHead()
    kept = [last.learn(message(b"", [("X-A", str(number))])) for number in range(8)]
    assert kept == [True] * 5 + [False] * 3
    last = LastHead()
    for number in range(20):
        data = message(b"", [("X-A", str(number))])
        assert last.learn(data)
        assert last.body_of(data) == b""


TRACES = [f"00-{digit * 32}-{digit * 16}-0{flag}" for digit in "1af" for flag in "01"]


@settings(max_examples=200, deadline=None)
@given(LINES, LINES, LINES, st.permutations(["Content-Length", "TraceParent"]), st.sampled_from(TRACES), st.binary())
def test_the_next_message_may_belong_to_another_trace(before, between, after, names, trace, body):
    def traced(value, body):
        said = {"Content-Length": str(len(body)), "TraceParent": value}
        lines = [*before, (names[0], said[names[0]]), *between, (names[1], said[names[1]]), *after]
        return (
            "".join(["POST / HTTP/1.1\r\n", *[f"{key}: {text.strip()}\r\n" for key, text in lines], "\r\n"]).encode()
            + body
        )

    last = LastHead()
    assert last.learn(traced(TRACES[0], b"first"))
    data = traced(trace, body)
    parsed = Parsed(data)
    assert parsed.is_whole == 1
    assert last.body_of(data) == parsed.body == body
    assert last.trace == trace.encode() == dict(parsed.headers)[b"traceparent"]


@pytest.mark.parametrize(
    "trace",
    [
        TRACES[0][:-1],
        TRACES[0] + "0",
        TRACES[0] + "-more",
        "00-" + "A" * 32 + "-" + "1" * 16 + "-01",
        " " * 55,
        "",
        "1\r\nX: 2",
    ],
)
def test_a_trace_of_another_form_is_left_to_the_parser(trace):
    for lines in ([("traceparent", TRACES[0])], [("traceparent", TRACES[0]), ("x", "y")]):
        last = LastHead()
        assert last.learn(message(b"abc", lines))
        changed = [(name, trace if name == "traceparent" else value) for name, value in lines]
        assert last.body_of(message(b"abc", changed)) is None


def test_two_traces_are_no_trace():
    last = LastHead()
    lines = [("traceparent", TRACES[0]), ("traceparent", TRACES[0])]
    assert last.learn(message(b"abc", lines))
    assert last.body_of(message(b"abcd", lines)) == b"abcd" and not last.trace
    assert last.body_of(message(b"abc", [lines[0], ("traceparent", TRACES[1])])) is None
