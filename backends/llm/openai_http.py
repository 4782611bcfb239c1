"""A target that speaks OpenAI's protocol over HTTP: vLLM, SGLang, TGI, a hosted provider, another gateway.

A stream's events go out as the bytes they came in; they are read only for accounting.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Final, Literal, cast

import msgspec

from backends.http_connection import Connection, StaleConnection
from backends.http_origin import Origin
from backends.http_pool import HttpPool
from backends.llm.answer_reader import AnswerReader, message_in
from backends.llm.base import ModelCall, SendAgain, SentWhole, Sink, WholeSink
from backends.llm.http_abilities import read_abilities, read_paths
from backends.llm.http_credentials import HttpCredentials
from backends.llm.http_settings import read_headers, read_timeouts, read_tls
from backends.llm.openai_body import BodyFields, body_for
from backends.llm.openai_replies import form_for
from backends.llm.sse import EventSplitter, data_of
from backends.tls import LiveContext
from contracts.configuration import TargetSpec
from contracts.errors import (
    ConfigurationError,
    TargetMisconfigured,
    TollkeeperError,
    UpstreamBroken,
    UpstreamError,
    UpstreamRateLimited,
    UpstreamRejected,
)
from contracts.generation import Continuation, Result
from contracts.requests import AnyRequest

_MAX_ERROR_BODY: Final = 64 * 1024
_MAX_REPLY_BODY: Final = 256 * 1024 * 1024
# The request itself is at fault: another replica would say the same.
_REJECTIONS: Final = frozenset({400, 409, 413, 415, 422})
_DEFAULT_WAIT_SECONDS: Final = 1.0  # where a server limits our rate and does not say for how long
_LONGEST_WAIT_SECONDS: Final = 86_400.0


class _Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a target's settings may say. The way to it is read by `http_settings`."""

    timeouts: object = None
    tls: object = None
    headers: object = None
    output_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    sends_reasoning_effort: bool = True
    sends_priority: bool = False
    sends_cache_control: bool = False
    refuses: object = None  # read, like the next two, by `http_abilities`
    takes: object = None
    paths: object = None
    metrics_url: str = ""  # read by gateway/metrics/upstream_metrics.py


class OpenAIHttpTarget:
    """One OpenAI-compatible server. `spec.url` ends where `/chat/completions` begins, e.g. http://host:8000/v1."""

    def __init__(self, spec: TargetSpec, resolve_key: Callable[[str], str]) -> None:
        if not spec.url:
            raise ConfigurationError(f"target {spec.id!r} of kind openai_http needs a url, e.g. http://host:8000/v1")
        self.spec = spec
        self._fields = _body_fields(spec)
        self._abilities = read_abilities(spec)
        self._paths = read_paths(spec)
        origin = Origin.parse(spec.url)
        tls, server_name = read_tls(spec, is_https=origin.scheme == "https")
        self._tls = tls
        self._pool = HttpPool(origin, read_timeouts(spec), tls, server_name)
        self._credentials = HttpCredentials(spec, read_headers(spec), resolve_key)
        self._renew_head()
        self._credentials.watch(self._renew_head)

    async def count_input(self, call: ModelCall) -> int | None:
        """Leave it open: only the server has the tokenizer."""
        return None

    async def call(self, call: ModelCall, sink: Sink, *, is_again: bool = False) -> Result:
        """Forward the request and pass the reply on. Raises UpstreamError, UpstreamRejected or UnsupportedParameter.

        Credentials that are refused are read again; where they are others by now, the request is sent once more.
        """
        if self._abilities is not None:
            self._abilities.check(call)
        path = call.path if self._paths is None else self._paths.get(call.path, call.path)
        body = body_for(call, self._fields)
        trace = f"traceparent: {call.trace_parent}\r\n" if call.trace_parent else ""
        head = self._head_of(path, trace, str(call.request_id), len(body))
        reader = _ReplyReader(self.spec, sink, call.request)
        exchange = await self._pool.send(head, body, reader)
        sink.attach_flow(exchange.pause, exchange.resume)
        await exchange.finished()
        try:
            return reader.result()
        except _CredentialsRefused:
            if is_again or not await self._reread():
                raise
        return await self.call(call, sink, is_again=True)

    def passes_on(self, model: str) -> bool:
        """Say whether whole chats for a model go out as they came: nothing to check, rename or add."""
        fields = self._fields
        is_renamed = bool(fields.model) and fields.model != model
        return not is_renamed and not fields.sends_priority and self._abilities is None and self._paths is None

    def send_at_once(
        self,
        path: str,
        request: AnyRequest,
        body: bytes,
        request_id: str,
        sink: WholeSink,
        on_end: Callable[[UpstreamError | None], None],
    ) -> SentWhole | None:
        """Send a request on a connection that is idle; `None` where none is."""
        head = self._head_of(path, "", request_id, len(body))
        reader = _ReplyReader(self.spec, cast(Sink, sink), request)  # of a sink's methods, a whole reply uses these
        connection = self._pool.send_at_once(head, body, reader, on_end)
        return None if connection is None else _SentWhole(reader, connection, self._pool, self._reread)

    async def _reread(self) -> bool:
        """Read the credentials again; say whether they are others by now."""
        if not await self._credentials.reread():
            return False
        self._renew_head()
        return True

    def can_continue(self, continuation: Continuation) -> bool:
        """Say no: the protocol has no way to ask for the rest of an answer."""
        return False

    async def close(self) -> None:
        """Close every connection to the server."""
        await self._credentials.close()
        await self._pool.close()

    @property
    def fault(self) -> str:
        """Say why a renewed key or certificate is not in use; empty where none is amiss."""
        return self._credentials.fault or (self._tls.fault if isinstance(self._tls, LiveContext) else "")

    def _head_of(self, path: str, trace: str, request_id: str, length: int) -> bytes:
        head = (
            f"POST {self._pool.origin.prefix}{path} HTTP/1.1\r\n{self._head_end}{trace}"
            f"x-request-id: {request_id}\r\ncontent-length: {length}\r\n\r\n"
        )
        return head.encode("latin-1")

    def _renew_head(self) -> None:
        """Put together what the heads of all requests end with."""
        self._head_end = (
            f"host: {self._pool.origin.authority}\r\n{self._credentials.lines}content-type: application/json\r\n"
            "accept: text/event-stream, application/json\r\naccept-encoding: identity\r\n"
        )


class _CredentialsRefused(TargetMisconfigured):
    """The server does not take what the gateway proves itself with."""

    code = "upstream_credentials_refused"


class _ReplyReader(AnswerReader):
    """Takes one reply as HTTP brings it: its head, then a stream's events or a whole body."""

    _status = 0
    _headers: Mapping[bytes, bytes] = MappingProxyType({})
    _events: EventSplitter | None = None
    _collected = 0

    def __init__(self, spec: TargetSpec, sink: Sink, request: AnyRequest) -> None:
        super().__init__(spec.id, sink, form_for(request), spec.model or request.model)
        self._is_streamed = request.is_streamed
        self._pieces: list[bytes] = []

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status, self._headers = status, headers
        if status == 200 and self._is_streamed:
            if not headers.get(b"content-type", b"").lower().startswith(b"text/event-stream"):
                raise UpstreamBroken(f"target {self._target!r} answered a stream request with another content type")
            if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
                raise UpstreamBroken(f"target {self._target!r} sent a compressed stream, which it was not asked for")
            self._events = EventSplitter()

    def on_body(self, data: bytes) -> bool:
        """Take a piece; of a stream, only what carries tokens or an end gets the reply on."""
        if self._events is not None:
            before = self.advances
            for event in self._events.feed(data):
                self.take_event(event)
            return self.advances != before
        self._collected += len(data)
        limit = _MAX_REPLY_BODY if self._status == 200 else _MAX_ERROR_BODY
        if self._collected > limit:
            raise UpstreamBroken(f"target {self._target!r} sent a reply of more than {limit} bytes")
        self._pieces.append(data)
        return True

    def result(self) -> Result:
        """Conclude the reply once it has ended."""
        if self._status != 200:
            raise self._error()
        if self._events is not None:
            # Some servers end their last line, [DONE], without the empty line that completes an event.
            rest = b"" if self.is_done else self._events.rest
            is_complete = self.is_complete or data_of(rest) == b"[DONE]"
            if not is_complete or (rest and data_of(rest) != b"[DONE]"):
                said = message_in(rest)  # an error's JSON in place of a stream
                raise UpstreamBroken(said or f"target {self._target!r} ended its stream before its answer was complete")
        else:
            try:
                self.take_whole(b"".join(self._pieces))
            except UpstreamBroken as error:
                if self._headers.get(b"content-encoding", b"identity").strip().lower() == b"identity":
                    raise
                raise UpstreamBroken(
                    f"target {self._target!r} sent a compressed reply, which it was not asked for"
                ) from error
        return super().result()

    def _error(self) -> TollkeeperError:
        detail = message_in(b"".join(self._pieces))
        said = f": {detail}" if detail else ""
        if self._status in _REJECTIONS:
            return UpstreamRejected(f"the model's server refused the request ({self._status}){said}")
        if self._status == 429:
            wait = _seconds(self._headers.get(b"retry-after"), time.time())
            return UpstreamRateLimited(
                f"target {self._target!r} is limiting the gateway's rate",
                retry_after_seconds=_DEFAULT_WAIT_SECONDS if wait is None else wait,
            )
        if self._status == 404:  # the model or the path: the target is set up wrong, another need not be
            return TargetMisconfigured(
                f"target {self._target!r} does not know the model or the path (404){said}", code="upstream_not_found"
            )
        if self._status in (401, 403):
            return _CredentialsRefused(f"target {self._target!r} refused the gateway's credentials ({self._status})")
        if 300 <= self._status < 400:  # whoever may redirect us would choose who reads the prompt and the key
            return TargetMisconfigured(
                f"target {self._target!r} answered with a redirect ({self._status}), and none is followed; "
                "set its url to where it answers",
                code="upstream_redirected",
            )
        return UpstreamError(f"target {self._target!r} failed with status {self._status}")


class _SentWhole:
    """A request that was sent on an idle connection."""

    __slots__ = ("_connection", "_pool", "_reader", "_reread")

    def __init__(
        self, reader: _ReplyReader, connection: Connection, pool: HttpPool, reread: Callable[[], Awaitable[bool]]
    ) -> None:
        self._reader = reader
        self._connection = connection
        self._pool = pool
        self._reread = reread

    def result(self, error: UpstreamError | None) -> Result:
        """Give the reply's account. Raises SendAgain where the connection was dead or the credentials are old."""
        if isinstance(error, StaleConnection):
            self._pool.drop_idle()  # it is sent once more (decision 0007), and so on a fresh one
            raise SendAgain
        if error is not None:
            raise error
        try:
            return self._reader.result()
        except _CredentialsRefused as refusal:
            raise SendAgain(refusal, self._reread) from None

    def release(self) -> None:
        """Give the connection back, or close it where the reply has not ended."""
        self._connection.release()


def _seconds(retry_after: bytes | None, now: float) -> float | None:
    """Read a Retry-After in seconds or as a date; `None` where it is neither, or absurd. `now` is Unix time."""
    if retry_after is None:
        return None
    text = retry_after.decode("latin-1")
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
            seconds = max(0.0, (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now)
        except (ValueError, TypeError, OverflowError):  # dates that no calendar has
            return None
    return seconds if 0 <= seconds < _LONGEST_WAIT_SECONDS else None


def _body_fields(spec: TargetSpec) -> BodyFields:
    try:
        given = msgspec.convert(spec.settings, _Settings)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"target {spec.id!r}, settings: {error}") from error
    return BodyFields(
        spec.model,
        given.output_limit_field,
        given.sends_reasoning_effort,
        given.sends_priority,
        given.sends_cache_control,
    )
