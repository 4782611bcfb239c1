"""What a model server may say: good streams and whole answers in every manner, whose text and usage are known."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from bench.fuzzing.model_server import stream_head, whole
from bench.fuzzing.requests import cut, cuts
from gateway.apis.operations import Operation

_TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=8)
_COMMENTS: Final = (b": keep-alive", b":", b"event: ping", b"retry: 3000", b"id: 7")

Counts = tuple[int, int]  # tokens of the prompt, tokens of the completion


@dataclass(frozen=True, slots=True)
class Told:
    """A good answer of a model server as bytes, and what it says."""

    data: bytes
    text: str
    reports: tuple[Counts, ...]  # of usage, in order; the last holds
    counted_from: int  # before this byte no usage is reported
    ends_at: int  # at this byte it is complete

    @property
    def usage(self) -> Counts | None:
        """Return the usage that holds; `None` if none is reported."""
        return self.reports[-1] if self.reports else None


@st.composite
def answers(draw: st.DrawFn, operation: Operation, streamed: bool) -> Told:
    """Write a good answer to a request of an operation which generates text."""
    is_chat = not operation.path.endswith("/completions") or operation.path.endswith("/chat/completions")
    counts = st.tuples(st.integers(0, 10**6), st.integers(1, 10**6))
    return draw(_streams(counts, is_chat) if streamed else _wholes(counts, is_chat))


@st.composite
def _wholes(draw: st.DrawFn, counts: st.SearchStrategy[Counts], is_chat: bool) -> Told:
    text, reported = draw(_TEXT), draw(st.one_of(st.none(), counts))
    said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
    body = {"id": "x", "created": 1, "model": "m", "choices": [{"index": 0, "finish_reason": "stop", **said}]}
    if reported is not None:
        body["usage"] = draw(_usage(reported))
    elif draw(st.booleans()):
        body["usage"] = None
    written = _written(body, draw(st.booleans()))
    data = whole(written)
    if draw(st.booleans()):
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        data = head + _chunks(cut(written, draw(cuts(3))))
    at = data.find(b'"usage"')
    return Told(data, text, () if reported is None else (reported,), at if at >= 0 else len(data), len(data))


@st.composite
def _streams(draw: st.DrawFn, counts: st.SearchStrategy[Counts], is_chat: bool) -> Told:
    """A stream whose usage stands nowhere, at the end, beside the last choice, on every chunk, or twice."""
    texts = draw(st.lists(_TEXT, max_size=5))
    manner = draw(st.sampled_from(("none", "end", "end", "last", "every", "twice", "null")))
    final = draw(counts)
    reports: list[Counts] = []
    bodies: list[dict[str, Any]] = []
    if is_chat and draw(st.booleans()):
        bodies.append(_chunk({"role": "assistant", "content": ""}, is_chat))
    for number, text in enumerate(texts, start=1):
        body = _chunk({"content": text}, is_chat)
        if manner == "every":
            reports.append((final[0], number))
            body["usage"] = draw(_usage(reports[-1]))
        elif manner == "null":
            body["usage"] = None
        bodies.append(body)
    bodies.append(_chunk({}, is_chat, "stop"))
    if manner == "last":
        reports.append(final)
        bodies[-1]["usage"] = draw(_usage(final))
    elif manner in ("end", "twice", "every", "null"):
        for _ in range(2 if manner == "twice" else 1):
            reports.append(final)
            bodies.append({"id": "x", "choices": [], "usage": draw(_usage(final))})
    ends = draw(st.sampled_from((b"\n\n", b"\n\n", b"\r\n\r\n", b"\r\r")))
    events = [b"data: " + _written(body, draw(st.booleans())) + ends for body in bodies]
    if draw(st.booleans()):
        events.insert(draw(st.integers(0, len(events))), draw(st.sampled_from(_COMMENTS)) + ends)
    if draw(st.integers(0, 9)) == 0:
        events[0] = b"\xef\xbb\xbf" + events[0]
    done = draw(
        st.sampled_from((b"data: [DONE]" + ends, b"data:[DONE]" + ends, b"data: [DONE]" + ends[: len(ends) // 2], b""))
    )
    return _framed(draw, [*events, done], "".join(texts), tuple(reports))


def _framed(draw: st.DrawFn, events: Sequence[bytes], text: str, reports: tuple[Counts, ...]) -> Told:
    body = b"".join(events)
    if draw(st.booleans()):
        pieces = list(events) if draw(st.booleans()) else cut(body, draw(cuts()))
        data = stream_head() + _chunks(pieces)
        ends_at = len(data)
    else:  # ended by closing
        data = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n" + body
        ends_at = len(data)
    at = data.find(b'"usage"')
    return Told(data, text, reports, at if at >= 0 else len(data), ends_at)


def _chunk(said: dict[str, str], is_chat: bool, finish: str | None = None) -> dict[str, Any]:
    place: dict[str, Any] = {"delta": said} if is_chat else {"text": said.get("content", "")}
    return {
        "id": "x",
        "object": "o",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, **place, "finish_reason": finish}],
    }


@st.composite
def _usage(draw: st.DrawFn, counts: Counts) -> dict[str, Any]:
    prompt, completion = counts
    found: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    if draw(st.booleans()):
        found["total_tokens"] = prompt + completion
    details = draw(st.sampled_from(("", "null", "some")))
    if details == "null":
        found |= {"prompt_tokens_details": None, "completion_tokens_details": None}
    elif details == "some":
        cached, thought = draw(st.integers(0, prompt)), draw(st.integers(0, completion))
        found["prompt_tokens_details"] = {"cached_tokens": cached, "audio_tokens": None}
        found["completion_tokens_details"] = {"reasoning_tokens": thought}
    return found


def _written(body: dict[str, Any], is_terse: bool) -> bytes:
    if is_terse:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    return json.dumps(body).encode()


def _chunks(pieces: Sequence[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"
