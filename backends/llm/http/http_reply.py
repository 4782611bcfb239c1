"""Reads a reply of an OpenAI-compatible server: a stream's events, a whole body, or an error."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from backends.http_client.http_connection import ChunkTaker
from backends.http_client.retry_after import retry_after_seconds
from backends.llm.answer_reader import AnswerReader, only_delta
from backends.llm.base import Sink
from backends.llm.http.known_shapes import KnownShapes
from backends.llm.http.openai_replies import GENERATED, broken, form_for, type_in
from backends.llm.http.sse import EventSplitter, data_of
from backends.llm.http.text_shape import TextShape
from contracts.api.chat import ChatRequest, GenerationRequest
from contracts.api.requests import AnyRequest
from contracts.errors import (
    TargetMisconfigured,
    TollkeeperError,
    UpstreamBroken,
    UpstreamError,
    UpstreamRateLimited,
    UpstreamRejected,
)
from contracts.serving.configuration import TargetSpec

_EVENTS: Final = b"text/event-stream"
_GENERATED: Final = GENERATED  # under a name of this module: compiled code looks up another's in a table
_MAX_ERROR_BODY: Final = 64 * 1024
# After this many failed attempts to find a common shape of chunks, a stream is parsed chunk by chunk.
_MAX_LESSONS: Final = 4
_MAX_REPLY_BODY: Final = 256 * 1024 * 1024  # for vectors as text
_MAX_GENERATED_BODY: Final = 64 * 1024 * 1024
_MOST_PIECES: Final = 1024
# The request is invalid: another replica would refuse it too.
_REJECTIONS: Final = frozenset({400, 409, 413, 415, 422})
_DEFAULT_WAIT_SECONDS: Final = 1.0  # if a 429 has no Retry-After
_NO_HEADERS: Final[Mapping[bytes, bytes]] = MappingProxyType({})


class CredentialsRefused(TargetMisconfigured):
    """The server refused the gateway's credentials."""

    code = "upstream_credentials_refused"


class ReplyReader(AnswerReader):
    """Receives one reply over HTTP: its head, then a stream's events or a whole body."""

    _status = 0
    _events: EventSplitter | None = None
    _collected = 0
    _blocks: list[bytes] | None = None  # earlier pieces, joined
    _shape: TextShape | None = None  # the expected shape of the next chunks
    _is_guessed = False  # whether the shape was guessed from earlier streams
    _lessons = 0  # attempts to find a shape since one was last useful

    def __init__(
        self,
        spec: TargetSpec,
        sink: Sink | None,
        request: AnyRequest,
        known_shapes: KnownShapes | None = None,
        *,
        takes_whole: bool = False,
        sent_credentials: tuple[str, ...] = (),
    ) -> None:
        """`known_shapes` are those of the target's earlier streams; for `takes_whole` see ModelCall.

        `sent_credentials` are removed from the server's error messages.
        """
        # Runs for every reply, so chats read attributes directly instead of calling properties.
        if isinstance(request, GenerationRequest):
            form, self._is_streamed = _GENERATED, request.stream is True
        else:
            form, self._is_streamed = form_for(request), False
        super().__init__(spec.id, sink, form, spec.model or request.model)
        if self._is_streamed:
            choices = request.n if isinstance(request, ChatRequest) else request.choice_count
            if choices is not None and choices > 1:  # chunks of several choices alternate, so they have no common shape
                self._lessons = _MAX_LESSONS
        self._known_shapes = known_shapes
        self._takes_whole = takes_whole
        self.sent_credentials = sent_credentials
        self._pieces: list[bytes] = []
        self._most_bytes = _MAX_GENERATED_BODY if form is _GENERATED else _MAX_REPLY_BODY
        self._headers: Mapping[bytes, bytes] = _NO_HEADERS

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status, self._headers = status, headers
        if status == 200 and self._is_streamed:
            content_type = headers.get(b"content-type", b"")
            if content_type != _EVENTS and not content_type.lower().startswith(_EVENTS):
                if self._takes_whole:
                    return
                raise UpstreamBroken(f"target {self._target!r} answered a stream request with another content type")
            encoding = headers.get(b"content-encoding")
            if encoding is not None and encoding.strip().lower() != b"identity":
                raise UpstreamBroken(f"target {self._target!r} sent a compressed stream, which it was not asked for")
            self._events = EventSplitter()

    def on_body(self, data: bytes) -> bool:
        """Process a piece. In a stream, only tokens and ends are progress; return whether there were any."""
        if self._events is not None:
            return self._take_stream(self._events, data)
        self._collected += len(data)
        limit = self._most_bytes if self._status == 200 else _MAX_ERROR_BODY
        if self._collected > limit:
            raise UpstreamBroken(f"target {self._target!r} sent a reply of more than {limit} bytes")
        self._pieces.append(data)
        if len(self._pieces) >= _MOST_PIECES:  # small pieces would need many times their length in memory
            if self._blocks is None:
                self._blocks = []
            self._blocks.append(b"".join(self._pieces))
            self._pieces.clear()
        return True

    def _whole_body(self) -> bytes:
        return b"".join(self._blocks + self._pieces) if self._blocks else b"".join(self._pieces)

    def chunk_taker(self) -> ChunkTaker | None:
        """Return the object that processes chunks with the expected shape."""
        return self._shape

    def _take_stream(self, splitter: EventSplitter, data: bytes) -> bool:
        before, had_begun = self.advances, self._is_named
        events = splitter.feed(data)
        for event in events:
            self.take_event(event)
        if self.is_complete or not splitter.is_between_events:
            self._forget_shape()  # the next chunk is not a further piece of text, or no whole event
        elif self._lessons < _MAX_LESSONS and len(events) == 1 and len(events[0]) == len(data):
            # The first chunk differs from the others: it also names the role or model.
            if not had_begun:
                if self._known_shapes is not None and self._tokens and self.model:
                    self._take_shape(self._known_shapes.shape_for(data, is_whole=False))
                    self._is_guessed = self._shape is not None
            elif self._shape is None or not self._shape.fits(data):
                self._learn_shape(data)
        return self.advances != before

    def _passed(self) -> int:
        """Return the number of tokens so far, including those in chunks of the expected shape."""
        return self._tokens if self._shape is None else self._tokens + self._shape.count

    def _learn_shape(self, event: bytes) -> None:
        was_of_use = self._shape is not None and self._shape.count > 0
        self._forget_shape()
        self._lessons = 1 if was_of_use else self._lessons + 1
        known = self._known_shapes
        # While the model is unknown, chunks are parsed to find its name.
        shape = known.shape_for(event, is_whole=True) if known is not None and self.model else None
        if shape is None:
            shape = TextShape.learn(event, only_delta)
            if shape is not None and known is not None:
                known.keep(shape, event, only_delta)
        self._take_shape(shape)

    def _take_shape(self, shape: TextShape | None) -> None:
        self._shape = shape
        if shape is not None and self._sink is not None:
            shape.pass_to(self._sink)

    def _forget_shape(self) -> None:
        if self._shape is not None:
            self._tokens += self._shape.count
            if self._is_guessed and self._shape.count and self._known_shapes is not None:
                self._known_shapes.was_of_use()
            self._shape, self._is_guessed = None, False

    def conclude(self) -> None:
        """Finish reading a reply that has ended. Raises its error, if it failed."""
        self._forget_shape()
        if self._status != 200:
            raise self._error()
        if self._events is not None:
            # Some servers omit the empty line after [DONE].
            rest = b"" if self.is_done else self._events.rest
            is_complete = self.is_complete or data_of(rest) == b"[DONE]"
            if not is_complete or (rest and data_of(rest) != b"[DONE]"):
                said = self._message_in(rest)  # a JSON error instead of events
                raise broken(said, f"target {self._target!r} ended its stream before its answer was complete")
        else:
            try:
                self.take_whole(self._whole_body())
            except UpstreamBroken as error:
                if self._headers.get(b"content-encoding", b"identity").strip().lower() == b"identity":
                    raise
                raise UpstreamBroken(
                    f"target {self._target!r} sent a compressed reply, which it was not asked for"
                ) from error
        super().conclude()

    def failure(self, error: Exception) -> Exception:
        """Return the error of an interrupted reply: its HTTP status, if that is an error; otherwise `error` itself."""
        if not isinstance(error, UpstreamError):
            return error
        if self._status == 200:
            error.upstream_status = 200
        return error if self._status in (0, 200) else self._error()

    def _error(self) -> TollkeeperError:
        detail = self._message_in(self._whole_body())
        error = self._status_error(detail)
        error.quote = detail
        error.upstream_status = self._status
        error.upstream_type = type_in(self._whole_body())
        return error

    def _status_error(self, detail: str) -> TollkeeperError:
        said = f": {detail}" if detail else ""
        if self._status in _REJECTIONS:
            return UpstreamRejected(f"the model's server refused the request ({self._status}){said}")
        if self._status == 429:
            wait = retry_after_seconds(self._headers.get(b"retry-after"))
            return UpstreamRateLimited(
                f"target {self._target!r} is limiting the gateway's rate",
                retry_after_seconds=_DEFAULT_WAIT_SECONDS if wait is None else wait,
            )
        if self._status == 404:  # model or path unknown: this target is misconfigured, others may not be
            return TargetMisconfigured(
                f"target {self._target!r} does not know the model or the path (404){said}", code="upstream_not_found"
            )
        if self._status in (401, 403):
            return CredentialsRefused(f"target {self._target!r} refused the gateway's credentials ({self._status})")
        if 300 <= self._status < 400:  # following it would let the server choose who gets the prompt and the key
            return TargetMisconfigured(
                f"target {self._target!r} answered with a redirect ({self._status}), and none is followed; "
                "set its url to where it answers",
                code="upstream_redirected",
            )
        return UpstreamError(
            f"target {self._target!r} failed with status {self._status}",
            retry_after_seconds=retry_after_seconds(self._headers.get(b"retry-after")),
        )
