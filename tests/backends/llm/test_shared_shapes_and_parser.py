"""Streams of one target whose chunks take many forms: what shared shapes take is what a parser reads of each stream."""

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

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
from contracts.errors import UpstreamBroken
from tests.backends.askers import AsTold
from tests.backends.llm.test_known_shapes import DONE, USAGE, answer, read, taught
from tests.backends.llm.test_text_shape import HEAD, SPEC, Relaying, Told, Wire, event, framed

# What looks like other parts of a chunk, and what stands in JSON in more than one way.
ODD_IDS = ["m", "id", "7", "{", "}],", '"', "\\", 'a"id":"b"', '{"id":"x"}', "\u4e16", "", "a" * 300, 0, 1]
ODD_TIMES = [0, 2**70, -1, 1.5, 1e300, None, True, "1", [1], {"id": "x"}]
IDS = st.sampled_from(["a", "b", "created", "chatcmpl-1"] * 6 + ODD_IDS)
TIMES = st.sampled_from([1, 2, 17] * 6 + ODD_TIMES)
NAMES = st.sampled_from(["m", "m", "a", "", None])
VERSIONS = st.sampled_from(["fp", "fq", "", None])
CONTENTS = st.sampled_from(["x", "x", "yz", "", '"', "\\", "\n", '","id":"q', "\u4e16", "m", "a"])
KINDS = st.sampled_from(["content"] * 8 + ["reasoning_content", "reasoning", "refusal", "text", "tool_calls", "parts"])
EXTRAS = st.sampled_from(
    [
        {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
        {"usage": None},
        {"error": None},
        {"error": {"message": "no"}},
        {"service_tier": "default"},
        {"service_tier": None},
        {"obfuscation": "ab"},
        {"obfuscation": "c"},
        {"nested": {"id": "b", "created": 3, "content": "x"}},
        {"model": "m2"},
        {"model": ""},
        {"system_fingerprint": "fr"},
        {"created": 18},
        {"id": "c"},
    ]
)
CHOICES = st.sampled_from(
    [
        {"finish_reason": "stop"},
        {"finish_reason": ""},
        {"finish_reason": "ab"},  # as long as null
        {"stop_reason": "x"},
        {"index": 1},
        {"logprobs": {"content": [{"token": "x", "logprob": -1.0}]}},
        {"id": "in a choice"},
        {"twice": True},
    ]
)
ORDERS = st.sampled_from(
    [
        ("id", "object", "created", "model", "system_fingerprint", "choices"),
        ("created", "id", "choices", "model", "system_fingerprint", "object"),
        ("choices", "id", "created", "object", "model"),
        ("id", "model", "created", "choices"),
        ("id", "created", "choices"),
    ]
)
SPACES = st.sampled_from([(", ", ": "), (",", ":"), (" ,", " :"), (",\t", ":  ")])
# What may stand where a text does, and shut the object that it stands in.
INSTEAD = st.sampled_from(
    [
        b'"a"},"x":null}],"model":"","y":[{"z":{"c":"b"',
        b'"a","content":"b"',
        b'"a","tool_calls":[{"index":0}],"c":"b"',
        b'["a"]',
        b"null",
        b'"a" ',
        b'"a\\ud83d"',
        b'"\xff"',
        b'"a","refusal":"b"',
        b'"a"},"finish_reason":"stop","y":{"c":"b"',
        b'"a"}},{"index":1,"delta":{"content":"b"',
    ]
)


@dataclass(frozen=True)
class Server:
    """One engine behind a target: how it writes chunks."""

    fields: dict[str, Any]
    order: tuple[str, ...]
    spaces: tuple[str, str]
    is_ascii: bool
    head: bytes
    is_index_last: bool
    kind: str
    begins_with_text: bool

    def write(self, more, choices, extra):
        """Write one chunk."""
        given = {**self.fields, **more, "choices": choices}
        said = {name: given[name] for name in self.order} | extra
        body = json.dumps(said, ensure_ascii=self.is_ascii, separators=self.spaces)
        return self.head + b"data: " + body.encode() + b"\n\n"

    def choice(self, kind, said, changes):
        """Return one choice that says something in one of the ways of saying it."""
        ways = {"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": said}}]}
        ways["parts"] = [{"type": "text", "text": said}]
        delta = {"content" if kind == "parts" else kind: ways.get(kind, said)}
        choice = {"text": said} if kind == "text" else {"delta": delta}
        choice |= {"logprobs": None, "finish_reason": None}
        choice = choice | {"index": 0} if self.is_index_last else {"index": 0} | choice
        return choice | {name: value for name, value in changes.items() if name != "twice"}


SERVERS = st.builds(
    Server,
    st.fixed_dictionaries({"object": st.just("chat.completion.chunk"), "model": NAMES, "system_fingerprint": VERSIONS}),
    ORDERS,
    SPACES,
    st.booleans(),
    st.sampled_from([b"", b"", b"event: message\n"]),
    st.booleans(),
    KINDS,
    st.booleans(),
)


@st.composite
def events_of_one_stream(draw, server):
    """Draw a stream's events: alike, as streams are, but for one here and there."""
    own = {"id": draw(IDS), "created": draw(TIMES)}
    count, other = draw(st.integers(2, 6)), draw(st.integers(0, 12))
    events = []
    for number in range(count):
        choices = [server.choice(server.kind, draw(CONTENTS), {})]
        extra = {}
        if number == 0:
            said = draw(CONTENTS) if server.begins_with_text else ""
            choices[0] = server.choice(server.kind, said, {})
            if server.kind == "content":
                choices[0]["delta"] = {"role": "assistant"} | choices[0]["delta"]
        elif number == other:
            changes = draw(st.just({}) | CHOICES)
            choices = [server.choice(draw(KINDS), draw(CONTENTS), changes)] * (2 if "twice" in changes else 1)
            extra = draw(st.just({}) | EXTRAS)
        event = server.write(own, choices, extra)
        if number == other and draw(st.booleans()):
            event = event.replace(b'"x"', draw(INSTEAD), 1)
        events.append(event)
    return [*events, server.write(own, [{"index": 0, "delta": {}, "finish_reason": "stop"}], {}), USAGE, DONE]


STREAMS = st.lists(SERVERS, min_size=1, max_size=2).flatmap(
    lambda servers: st.lists(st.sampled_from(servers).flatmap(events_of_one_stream), min_size=2, max_size=6)
)


class Noting(Told):
    """A sink that remembers all that it was told, in order."""

    def __init__(self):
        super().__init__()
        self.told = []

    def event(self, data, deltas, *, is_usage_only):
        self.told += [data, deltas, is_usage_only]

    def served(self, model, version):
        self.told += [model, version]


def parsed(events, sink):
    """Read a stream without any shape; return its account, or what it failed with."""
    request = ChatRequest(model="m", messages=[Message(role="user", content="Hi")], stream=True)
    reader = ReplyReader(SPEC, sink, request)
    reader.on_head(200, {b"content-type": b"text/event-stream"})
    reader._lessons = 99  # nothing is learned
    for one in events:
        reader.on_body(one)
    return reader.result()


def shared(events, sink, known, cuts=None):
    """Read a stream with the shapes of earlier ones, as far as it is sound: chunk by chunk, or cut at places."""
    connection = Connection(HttpPool(Origin.parse("http://a"), read_timeouts(SPEC)), lambda: 1.0)
    ends: list[Exception | None] = []
    connection.connection_made(Wire())  # type: ignore[arg-type]
    request = ChatRequest(model="m", messages=[Message(role="user", content="Hi")], stream=True)
    reader = ReplyReader(SPEC, sink, request, known)
    connection.send(b"", b"", reader, AsTold(ends), is_reused=False)
    pieces = [HEAD + framed(events[0]), *map(framed, events[1:]), b"0\r\n\r\n"]
    if cuts is not None:
        whole = b"".join(pieces)
        pieces = [whole[start:end] for start, end in pairwise([0, *sorted({cut % len(whole) for cut in cuts}), None])]
    for piece in filter(None, pieces):
        if not ends:
            connection.data_received(piece)
    [error] = ends
    if error is not None:
        raise error
    return reader.result()


def outcome(read_one, *given):
    """Return a stream's account, or that there is none."""
    try:
        return read_one(*given)
    except UpstreamBroken:
        return UpstreamBroken


@settings(max_examples=200, deadline=None)
@given(STREAMS)
def test_whatever_form_chunks_have_shared_shapes_read_what_a_parser_reads(streams):
    known = KnownShapes()
    for events in streams:
        alone, sharing = Noting(), Noting()
        assert outcome(shared, events, sharing, known) == outcome(parsed, events, alone)
        assert sharing.told == alone.told


@settings(max_examples=60, deadline=None)
@given(STREAMS, st.lists(st.lists(st.integers(0, 9_999), max_size=10), min_size=6, max_size=6))
def test_wherever_streams_are_cut_shared_shapes_read_what_a_parser_reads(streams, cuts):
    known = KnownShapes()
    for events, places in zip(streams, cuts, strict=False):
        alone, whole, cut = Noting(), Noting(), Noting()
        expected = outcome(parsed, events, alone)
        assert outcome(shared, events, whole, known) == expected == outcome(shared, events, cut, known, places)
        assert whole.told == cut.told == alone.told


def test_an_answer_that_is_named_late_is_named_all_the_same():
    named = {"id": "s", "created": 1}
    known = taught(event({"content": "a"}, **named))
    text = event({"content": "b"}, **named)
    # Begins and ends as the known chunk does, and says that there is no name.
    nameless = text.replace(b'"b"', b'"b"}, "x": null}], "model": "", "y": [{"z": {"c": "b"')
    assert only_delta(nameless) is not None
    first = event({"role": "assistant", "content": ""}, model="", **named)
    events = [first, nameless, text, text, event({}, finish="stop", model="", **named), USAGE, DONE]
    alone, sharing = Noting(), Noting()
    result = shared(events, sharing, known)
    assert result == parsed(events, alone) and result.model == "m"
    assert sharing.told == alone.told


def test_a_guess_that_takes_nothing_is_of_no_use():
    known = KnownShapes()
    for number in range(70):
        read(answer("a", 1, ["x", "y"], first="z", model=f"m{number}"), Relaying(), known)
    last = event({"content": "x"}, id="b", created=2, model="m69")
    assert known.shape_for(last, is_whole=True) is None, "64 in vain were enough, though their ids were all found"


def test_a_guess_that_takes_a_chunk_is_of_use():
    known = KnownShapes()
    for number in range(70):
        for id in ("a", "b"):
            read(answer(id, 1, ["x", "y"], first="z", model=f"m{number}"), Relaying(), known)
    last = event({"content": "x"}, id="b", created=2, model="m69")
    assert known.shape_for(last, is_whole=True) is not None


@pytest.mark.parametrize(
    "learned",
    [
        event({"content": "a-secret"}, logprobs={"content": [{"token": "a-secret"}]}),
        event({"content": "a-secret"}).replace(b'"logprobs": null', b'"logprobs":{"tokens":["a-secret"]}'),
        event({"content": "a-secret"}, token_ids=[1, 2]),
        event({"content": "a-secret"}, filling="a" * 4096),
        event({"content": "a" * 4096}),
    ],
)
def test_what_says_its_text_again_or_is_long_is_not_kept(learned):
    known = KnownShapes()
    shape = TextShape.learn(learned, only_delta)
    assert shape is not None
    known.keep(shape, learned, only_delta)
    assert not known._outlines
