"""A target that speaks OpenAI's protocol over HTTP: vLLM, SGLang, TGI, a hosted provider, another gateway.

A stream's events are passed on unchanged; they are parsed only for accounting.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, cast
from urllib.parse import quote

import msgspec

from backends.http_client.http_connection import Connection, ReplyEndListener, StaleConnection
from backends.http_client.http_origin import Origin
from backends.http_client.http_pool import Exchange, HttpPool
from backends.llm.base import ModelCall, PassingSink, SendAgain, Sink
from backends.llm.encoding_room import LARGE_BODY_BYTES
from backends.llm.http.gemini_reply import GeminiEmbeddingReader, GeminiReader
from backends.llm.http.http_abilities import read_abilities, read_paths
from backends.llm.http.http_credentials import HttpCredentials
from backends.llm.http.http_reply import CredentialsRefused, ReplyReader
from backends.llm.http.http_settings import OpenAISettings, read_headers, read_timeouts, read_tls
from backends.llm.http.known_shapes import KnownShapes
from backends.llm.http.native_body import NO_EDITS, Edits, native_body, renamed_embedding
from backends.llm.http.native_reply import MessagesReader, NativeReader, ResponsesReader
from backends.llm.http.openai_body import BodyFields, ThinkingCapField, body_for, with_usage
from backends.llm.http.quick_target import QuickTarget, SentRequest
from backends.llm.media_reply import MediaReader
from backends.llm.parameters import fields_of, refuse_named
from backends.network.tls import LiveContext
from contracts.api.chat import GenerationRequest, TranslatedChat
from contracts.api.embedding import TranslatedEmbedding
from contracts.api.generation import Continuation, Result
from contracts.api.media import MediaRequest, TranscriptionRequest
from contracts.api.native import MODEL_IN_PATH, NativeApi, NativeBody
from contracts.api.requests import AnyRequest
from contracts.errors import ConfigurationError, UnsupportedParameter, UpstreamError
from contracts.metering.usage import Usage
from contracts.serving.configuration import TargetSpec
from contracts.serving.native_apis import native_apis

NOTHING_SENT: Final = Result(usage=Usage(input_text=0, output_text=0), count_method="exact")

_ANY_JSON: Final = b"\r\ncontent-type: application/json\r\naccept: text/event-stream, application/json\r\n"
_OPENROUTER: Final = "openrouter.ai"
_ANTHROPIC: Final = "api.anthropic.com"
# Anthropic's own API expects the key in a header of its own.
_BEARER: Final = b"\r\nauthorization: Bearer "
_ANTHROPIC_KEY: Final = b"\r\nx-api-key: "
_GOOGLE: Final = "generativelanguage.googleapis.com"
_GOOGLE_KEY: Final = b"\r\nx-goog-api-key: "
_READERS: Final[Mapping[NativeApi, type[NativeReader]]] = {
    "messages": MessagesReader,
    "responses": ResponsesReader,
    "gemini": GeminiReader,
}


class OpenAIHttpTarget(QuickTarget):
    """One OpenAI-compatible server. `spec.url` is the base to which `/chat/completions` is appended, e.g.
    http://host:8000/v1.
    """

    def __init__(self, spec: TargetSpec, resolve_key: Callable[[str], str]) -> None:
        if not spec.url:
            raise ConfigurationError(f"target {spec.id!r} of kind openai_http needs a url, e.g. http://host:8000/v1")
        self.spec = spec
        self._fields = _body_fields(spec)
        self._abilities = read_abilities(spec)
        self._known_shapes = KnownShapes()
        self._paths = read_paths(spec)
        self._apis = native_apis(spec)
        origin = Origin.parse(spec.url)
        tls, server_name = read_tls(spec, is_https=origin.scheme == "https")
        self._tls = tls
        self._pool = HttpPool(origin, read_timeouts(spec), tls, server_name)
        self._credentials = HttpCredentials(spec, read_headers(spec), resolve_key)
        self._is_anthropic = origin.host == _ANTHROPIC or self._apis == {"messages"}
        self._is_google = origin.host == _GOOGLE or self._apis == {"gemini"}
        self._renew_head()
        self._credentials.watch(self._renew_head)

    async def count_input(self, call: ModelCall) -> int | None:
        """Return `None`: only the server has the tokenizer."""
        return None

    async def call(self, call: ModelCall, sink: Sink, *, is_again: bool = False) -> Result:
        """Forward a request and its reply. Raises UpstreamError, UpstreamRejected or UnsupportedParameter.

        If the credentials are refused, they are read again; if they have changed, the request is sent once more.
        """
        try:
            exchange, reader = await self._send(call, sink)
        except asyncio.CancelledError:  # while it waited for a connection
            sink.account(NOTHING_SENT)
            raise
        sink.attach_flow(exchange.pause, exchange.resume)
        failure: UpstreamError | None = None
        try:
            await exchange.finished()
        except UpstreamError as error:
            failure = error
        if failure is not None:  # outside the handler, see decision 0032
            raise reader.failure(failure)
        try:
            return reader.result()
        except CredentialsRefused as error:
            if is_again:
                raise
            refusal = error
        if not await self.reread():  # outside the handler, see decision 0032
            raise refusal
        return await self.call(call, sink, is_again=True)

    async def _send(self, call: ModelCall, sink: Sink) -> tuple[Exchange, ReplyReader]:
        request = call.request
        native = request.native if isinstance(request, TranslatedChat) else None
        if native is not None and native.api in self._apis:
            return await self._send_native(call, sink, native)
        if isinstance(request, TranslatedEmbedding) and request.native is not None and "gemini" in self._apis:
            return await self._send_embedding(call, sink, request.native)
        if "chat" not in self._apis:
            raise UnsupportedParameter(
                f"{request.model!r} is served by targets that take only requests of the API "
                f"{' or '.join(sorted(self._apis))}; ask for it there, or add a target that takes chats",
                param="model",
            )
        if isinstance(request, MediaRequest):
            return await self._send_media(call, sink, request)
        if self._abilities is not None:
            self._abilities.check(call)
        path = call.path if self._paths is None else self._paths.get(call.path, call.path)
        if len(call.body) <= LARGE_BODY_BYTES:
            body = body_for(call, self._fields)
        else:
            body = await asyncio.to_thread(body_for, call, self._fields)
        head = self._head_of(path, _trace_of(call), str(call.request_id), len(body))
        reader = ReplyReader(
            self.spec,
            sink,
            call.request,
            self._known_shapes,
            takes_whole=call.takes_whole,
            sent_credentials=self._credentials.values,
        )
        return await self._pool.send(head, body, reader), reader

    async def _send_media(self, call: ModelCall, sink: Sink, request: MediaRequest) -> tuple[Exchange, ReplyReader]:
        """Send a request for images, audio or moderation: unchanged, except for the model's name."""
        path = call.path if self._paths is None else self._paths.get(call.path, call.path)
        if isinstance(request, TranscriptionRequest):
            model = self._fields.model
            body = request.renamed(call.body, model) if model and model != request.model else call.body
        else:
            if self._abilities is not None:
                self._abilities.check(call)
            body = body_for(call, self._fields)
        head = self._head_of(path, _trace_of(call), str(call.request_id), len(body))
        head = head.replace(_ANY_JSON, b"\r\ncontent-type: %b\r\naccept: */*\r\n" % request.media_type.encode(), 1)
        reader = MediaReader(self.spec, sink, request, self._credentials.values)
        return await self._pool.send(head, body, reader), reader

    async def _send_native(self, call: ModelCall, sink: Sink, native: NativeBody) -> tuple[Exchange, ReplyReader]:
        """Send a request in the API in which it arrived: unchanged, except for what the gateway must change."""
        model = self._fields.model or call.request.model
        if self._abilities is not None:
            refuse_named(call.request.model, fields_of(native.body), self._abilities.refuses)
        edits = Edits(call.set_fields, call.max_output, call.reasoning_effort, call.max_thinking)
        if len(native.body) <= LARGE_BODY_BYTES:
            body = native_body(edits, native, model)
        else:
            body = await asyncio.to_thread(native_body, edits, native, model)
        head = self._native_head(native, model, _trace_of(call), str(call.request_id), len(body))
        reader = _READERS[native.api](self.spec, sink, call.request, self._credentials.values)
        return await self._pool.send(head, body, reader), reader

    def _native_head(self, native: NativeBody, model: str, trace: str, request_id: str, length: int) -> bytes:
        path = native.path if self._paths is None else self._paths.get(native.path, native.path)
        if MODEL_IN_PATH in path:
            path = path.replace(MODEL_IN_PATH, quote(model, safe="/"), 1)
        head = self._head_of(path, trace + native.head, request_id, length)
        if native.api == "messages" and self._is_anthropic:
            return head.replace(_BEARER, _ANTHROPIC_KEY, 1)
        if native.api == "gemini" and self._is_google:
            return head.replace(_BEARER, _GOOGLE_KEY, 1)
        return head

    async def _send_embedding(self, call: ModelCall, sink: Sink, native: NativeBody) -> tuple[Exchange, ReplyReader]:
        """Send an embedding request in Google's API: unchanged, except for the model's name."""
        model = self._fields.model or call.request.model
        body = renamed_embedding(native.body, model) if model != call.request.model else native.body
        path = native.path.replace(MODEL_IN_PATH, quote(model, safe="/"), 1)
        head = self._head_of(path, _trace_of(call) + native.head, str(call.request_id), len(body))
        if self._is_google:
            head = head.replace(_BEARER, _GOOGLE_KEY, 1)
        reader = GeminiEmbeddingReader(
            self.spec, sink, call.request, self._known_shapes, sent_credentials=self._credentials.values
        )
        return await self._pool.send(head, body, reader), reader

    def passes_on(self, model: str, native: NativeApi | None = None) -> bool:
        """Return whether chats for a model are sent unchanged. With `native`, its name may be replaced."""
        fields = self._fields
        if native is not None:
            return native in self._apis and self._abilities is None
        is_renamed = bool(fields.model) and fields.model != model
        takes_all = self._abilities is None and self._paths is None and "chat" in self._apis
        return takes_all and not is_renamed and not fields.sends_priority

    def send_at_once(
        self,
        path: str,
        request: AnyRequest,
        body: bytes,
        request_id: str,
        trace: str,
        sink: PassingSink | None,
        asker: ReplyEndListener,
    ) -> SentRequest | None:
        """Send a request on an idle connection; return `None` if there is none."""
        # Whole answers have no sink, which is checked first because the check of the class is slow.
        if sink is not None and isinstance(request, GenerationRequest) and request.stream is True:
            body = with_usage(request, body)
        connection = self._pool.send_at_once(self._head_of(path, trace, request_id, len(body)), body, asker)
        if connection is None:
            return None
        # Such replies use only the methods of a PassingSink.
        reader = ReplyReader(
            self.spec,
            cast(Sink | None, sink),
            request,
            self._known_shapes,
            sent_credentials=self._credentials.values,
        )
        connection.receiver = reader
        return _SentOnIdle(reader, connection, self._pool, self)

    def send_native_at_once(
        self, request: TranslatedChat, request_id: str, trace: str, sink: Sink, asker: ReplyEndListener
    ) -> SentRequest | None:
        """Send a request in the API in which it arrived, on an idle connection; return `None` if there is none."""
        native = request.native
        if native is None:
            return None
        model = self._fields.model or request.model
        body = native_body(NO_EDITS, native, model)
        head = self._native_head(native, model, trace, request_id, len(body))
        connection = self._pool.send_at_once(head, body, asker)
        if connection is None:
            return None
        reader = _READERS[native.api](self.spec, sink, request, self._credentials.values)
        connection.receiver = reader
        return _SentOnIdle(reader, connection, self._pool, self)

    async def reread(self) -> bool:
        """Read the credentials again; return whether they have changed."""
        if not await self._credentials.reread():
            return False
        self._renew_head()
        return True

    def can_continue(self, continuation: Continuation) -> bool:
        """Return `False`: the protocol cannot continue an answer."""
        return False

    async def close(self) -> None:
        """Close all connections to the server."""
        await self._credentials.close()
        await self._pool.close()

    @property
    def fault(self) -> str:
        """Return why a renewed key or certificate is not in use; empty if there is no problem."""
        return self._credentials.fault or (self._tls.fault if isinstance(self._tls, LiveContext) else "")

    def _head_of(self, path: str, trace: str, request_id: str, length: int) -> bytes:
        head = (
            f"{self._head_start}{path} HTTP/1.1\r\n{self._head_end}{trace}"
            f"x-request-id: {request_id}\r\ncontent-length: {length}\r\n\r\n"
        )
        return head.encode("latin-1")

    def _renew_head(self) -> None:
        """Build the constant beginning and end of all request heads."""
        self._head_start = f"POST {self._pool.origin.prefix}"
        self._head_end = (
            f"host: {self._pool.origin.authority}\r\n{self._credentials.lines}{_ANY_JSON.decode()[2:]}"
            "accept-encoding: identity\r\n"
        )


def _trace_of(call: ModelCall) -> str:
    """Return the header lines that continue the caller's trace."""
    trace = f"traceparent: {call.trace_parent}\r\n" if call.trace_parent else ""
    return f"{trace}tracestate: {call.trace_state}\r\n" if call.trace_state else trace


class _SentOnIdle(SentRequest):
    """A request that was sent on an idle connection."""

    __slots__ = ("_connection", "_is_released", "_pool", "_reader", "_target")

    def __init__(self, reader: ReplyReader, connection: Connection, pool: HttpPool, target: OpenAIHttpTarget) -> None:
        super().__init__()
        self._reader = reader
        self._connection = connection
        self._pool = pool
        self._target = target
        self._is_released = False  # afterwards another request may use the connection

    def conclude(self, error: Exception | None) -> None:
        """Read the reply's result. Raises SendAgain if the connection was dead or the credentials are outdated."""
        if isinstance(error, StaleConnection):
            self._pool.drop_idle()  # so that the request is sent again on a new connection (decision 0007)
            raise SendAgain
        reader = self._reader
        if error is not None:
            raise reader.failure(error)
        try:
            reader.conclude()
        except CredentialsRefused as refusal:
            raise SendAgain(refusal, self._target.reread) from None
        self.body, self.served_model, self.served_version = reader.body, reader.served_model, reader.served_version

    def account(self) -> Result:
        """Return the reply's account."""
        return self._reader.account()

    def release(self) -> None:
        """Release the connection; closes it if the reply has not ended."""
        self._is_released = True
        self._connection.release()

    def pause(self) -> None:
        """Pause reading, so that a slow client slows the target down. Does nothing after the release."""
        if not self._is_released:
            self._connection.pause()

    def resume(self) -> None:
        """Resume reading. Does nothing after the release."""
        if not self._is_released:
            self._connection.resume()


def _body_fields(spec: TargetSpec) -> BodyFields:
    try:
        given = msgspec.convert(spec.settings, OpenAISettings)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"target {spec.id!r}, settings: {error}") from error
    return BodyFields(
        spec.model,
        given.output_limit_field,
        given.sends_reasoning_effort,
        given.sends_priority,
        given.sends_cache_control,
        _cap_field(spec) if given.thinking_cap_field is None else given.thinking_cap_field,
    )


def _cap_field(spec: TargetSpec) -> ThinkingCapField:
    """Return the field for a cap on reasoning tokens by the server's address; empty if unknown."""
    host = Origin.parse(spec.url or "").host
    return "reasoning" if host == _OPENROUTER or host.endswith(f".{_OPENROUTER}") else ""
