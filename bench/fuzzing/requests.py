"""Requests as bytes: good ones in every framing, known bad ones, and what chance makes of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from bench.fuzzing.bodies import example_of
from bench.fuzzing.rig import KEY
from gateway.apis.operations import Operation

_TOKENS: Final = "abcdefghijklmnopqrstuvwxyz0123456789-"
_HARMLESS: Final = (
    (b"Accept", b"*/*"),
    (b"User-Agent", b"fuzz/1.0"),
    (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    (b"traceparent", b"00-zz"),
    (b"tracestate", b"a=b,c=d"),
    (b"x-stainless-retry-count", b"3"),
    (b"x-stainless-retry-count", b"-9999999999"),
    (b"x-tollkeeper-run-id", b"r" * 200),
    (b"x-tollkeeper-conversation-id", b"\xe9"),
    (b"x-tollkeeper-tags", b"a=b, c=d"),
    (b"x-tollkeeper-priority", b"batch"),
    (b"x-tollkeeper-latency-budget-ms", b"5"),
    (b"X-Forwarded-For", b"1.2.3.4, garbage"),
    (b"anthropic-version", b"2023-06-01"),
    (b"anthropic-beta", b"x"),
    (b"Cookie", b"a=b; c=d"),
    (b"Content-Encoding", b"identity"),
)
# What is put in the place of a few bytes.
_SPLICES: Final = (
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\x00", b" ", b"\t", b":", b"0", b"-1", b"ffffffffffffffff", b"\xff"),
    *(b"Content-Length: 5\r\n", b"content-length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: b\r\n"),
    *(b"Transfer-Encoding: gzip, chunked\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n"),
    *(b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.1", b"GET ", b"OPTIONS "),
    *(
        b"x: " + b"y" * 40_000 + b"\r\n",
        b"a:b\r\n" * 120,
        b"{",
        b"}",
        b"[",
        b'"',
        b"\\",
        b"\\ud800",
        b"%00",
        b"?",
        b"#",
    ),
    *(b"0\r\n\r\n", b"5\r\nhello\r\n", b";a=b", b"GET /health HTTP/1.1\r\nHost: ::1\r\n\r\n", b"Bearer", b"bearer "),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and the status of its answer. `closes`: nothing after it is answered."""

    data: bytes
    status: int
    operation: Operation | None = None
    closes: bool = False
    names_no_key: bool = False


@dataclass(frozen=True, slots=True)
class Splice:
    """A change of bytes: at a share of the way, the given number of them become others."""

    at: float
    length: int
    put: bytes


def cuts(count: int = 6) -> st.SearchStrategy[list[float]]:
    """Return where something is cut, as shares of its length."""
    return st.lists(st.floats(0, 1), max_size=count)


def cut(data: bytes, shares: Sequence[float]) -> list[bytes]:
    """Cut bytes; no piece is empty."""
    edges = sorted({0, len(data), *(round(share * len(data)) for share in shares)})
    return [data[begin:end] for begin, end in zip(edges, edges[1:], strict=False)]


def splices() -> st.SearchStrategy[list[Splice]]:
    """Return one to four changes of bytes."""
    put = st.one_of(st.sampled_from(_SPLICES), st.binary(max_size=4))
    return st.lists(
        st.builds(Splice, st.floats(0, 1), st.sampled_from((0, 0, 1, 1, 2, 8)), put), min_size=1, max_size=4
    )


def spliced(data: bytes, changes: Sequence[Splice]) -> bytes:
    """Change bytes."""
    for change in changes:
        at = round(change.at * len(data))
        data = data[:at] + change.put + data[at + change.length :]
    return data


@st.composite
def good_requests(draw: st.DrawFn, answered: Sequence[tuple[Operation, str, bool]]) -> Asked:
    """Write a good request of what is answered (operation, model, streamed?), in any framing that HTTP/1 has."""
    operation, model, streamed = draw(st.sampled_from(answered))
    body = json.dumps(example_of(operation.api, model) | ({"stream": True} if streamed else {})).encode()
    version = draw(st.sampled_from((b"1.1", b"1.1", b"1.1", b"1.0")))
    headers = {b"Host": b"localhost", b"Authorization": b"Bearer " + KEY.encode(), b"Content-Type": b"application/json"}
    headers |= dict(draw(st.lists(st.sampled_from(_HARMLESS), max_size=4)))
    headers |= dict(draw(_arbitrary_headers()))
    closes = version == b"1.0"
    if draw(st.booleans()):
        headers[b"Connection"] = b"close" if draw(st.booleans()) else b"keep-alive"
        closes = headers[b"Connection"] == b"close" or (closes and streamed)
    if version == b"1.1" and draw(st.booleans()):
        headers[b"Transfer-Encoding"] = b"chunked"
        framed = draw(chunkings(body))
    else:
        headers[b"Content-Length"] = b"%d" % len(body)
        framed = body
    spaces = draw(st.sampled_from((b": ", b":", b":   ", b":\t")))
    lines = [_in_case(name, draw(st.booleans())) + spaces + value for name, value in headers.items()]
    head = [b"POST %b HTTP/%b" % (operation.paths[0].encode(), version), *draw(st.permutations(lines)), b"", b""]
    return Asked(b"\r\n".join(head) + framed, 200, operation, closes)


@st.composite
def chunkings(draw: st.DrawFn, body: bytes) -> bytes:
    """Write a body in the chunked coding: chunks of any size, with extensions, and trailers."""
    written = b""
    for piece in cut(body, draw(cuts())):
        size = draw(st.sampled_from((b"%x", b"%X", b"00%x"))) % len(piece)
        written += size + draw(st.sampled_from((b"", b";a", b";a=b", b';a="b c"'))) + b"\r\n" + piece + b"\r\n"
    trailer = draw(st.sampled_from((b"", b"x-checksum: 1\r\n", b"Authorization: Bearer x\r\n")))
    return written + b"0\r\n" + trailer + b"\r\n"


@st.composite
def broken_chunkings(draw: st.DrawFn, body: bytes) -> bytes:
    """Write a body in the chunked coding with one size that is none, or is not that of its chunk."""
    pieces = cut(body, draw(cuts()))
    broken = draw(st.integers(0, len(pieces) - 1))
    written = b""
    for number, piece in enumerate(pieces):
        size = b"%x" % len(piece)
        if number == broken:
            bad = (
                b"",
                b"g",
                b"-" + size,
                b"+" + size,
                b"0x" + size,
                b" " + size,
                size + b"\x00",
                b"f" * 17,
                size + b" 1",
            )
            size = draw(st.sampled_from((*bad, b"%x" % (len(piece) - 1) if len(piece) > 1 else b"z")))
        written += size + b"\r\n" + piece + b"\r\n"
    return written + b"0\r\n\r\n"


def known_requests(operation: Operation, model: str) -> list[Asked]:
    """Return requests whose answers are known, to be sent one after another."""
    good = json.dumps(example_of(operation.api, model)).encode()
    path = operation.paths[0].encode()
    key = b"Authorization: Bearer %b\r\n" % KEY.encode()

    def post(path: bytes, body: bytes, headers: bytes = key, kind: bytes = b"application/json") -> bytes:
        head = b"POST %b HTTP/1.1\r\nHost: localhost\r\n%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
        return head % (path, headers, kind, len(body)) + body

    return [
        Asked(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        Asked(b"\r\nGET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + key + b"\r\n", 200),
        Asked(b"GET /nope HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        Asked(b"PUT %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" % path, 405, operation),
        Asked(post(path, good), 200, operation),
        Asked(post(path, b'{"model": '), 400, operation),
        Asked(post(path, b"{}"), 400, operation),
        Asked(post(path, good, headers=b""), 401, operation, names_no_key=True),
        Asked(post(path, good, kind=b"text/plain"), 415, operation),
        Asked(post(path, good.replace(model.encode(), b"gpt-nope")), 404, operation),
        Asked(post(path, good, key + b"Connection: close\r\n"), 200, operation, closes=True),
        Asked(post(path, good, key + b"Content-Length: 5\r\n"), 400, closes=True),
        Asked(b"\x00\x01\x02\r\n\r\n", 400, closes=True),
    ]


def _arbitrary_headers() -> st.SearchStrategy[list[tuple[bytes, bytes]]]:
    name = st.text(_TOKENS, min_size=1, max_size=12).map(lambda found: b"x-f-" + found.encode())
    value = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20)
    return st.lists(st.tuples(name, value.map(lambda found: found.encode("latin-1"))), max_size=6)


def _in_case(name: bytes, is_upper: bool) -> bytes:
    return name.upper() if is_upper else name
