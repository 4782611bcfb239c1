"""POST /v1beta/models/{model}:generateContent and :streamGenerateContent as the data plane's operation."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import parse_qs

import msgspec

from contracts.api.answer_parts import CalledTool
from contracts.api.chat import TranslatedChat
from contracts.api.gemini import GeminiRequest
from contracts.api.native import GEMINI_STREAM_PATH, NATIVE_PATHS
from contracts.api.native_answers import GeminiAnswer
from contracts.api.requests import AnyRequest
from contracts.errors import InvalidRequest, TollkeeperError
from contracts.metering.usage import Usage
from contracts.serving.configuration import Snapshot
from gateway.apis.gemini.embedding import BATCH, BATCH_EMBED_CONTENTS, EMBED_CONTENT, ONE
from gateway.apis.gemini.errors import GEMINI_ERRORS
from gateway.apis.gemini.paths import model_and_verb, verb_of
from gateway.apis.gemini.reading import read_gemini
from gateway.apis.gemini.rendering import GeminiRenderer
from gateway.apis.gemini.untranslated import read_untranslated_gemini
from gateway.apis.native.reading import NativeReading, Readers
from gateway.apis.operations import CHAT, Operation
from gateway.replies.answer_facts import called_tool, mark_of
from gateway.replies.progress import Progress
from gateway.replies.reply import Reply, ReplyFacts
from gateway.replies.translated_reply import NativeStreamTracker, TranslatedReply
from gateway.wire.exchange import Exchange

_JSON: Final = "application/json"
_STREAM: Final = "streamGenerateContent"
_VERBS: Final = frozenset(("generateContent", _STREAM))
_answers: Final = msgspec.json.Decoder(GeminiAnswer)


class GeminiStreamTracker(NativeStreamTracker):
    """Ends a native stream if the gateway cuts it. Each event is a complete response, so there is nothing else to
    close.
    """

    def take(self, data: bytes) -> None:
        """Accept an event."""

    def ending(self, why: TollkeeperError, usage: Usage) -> bytes:
        """Return the event that ends the stream."""
        renderer = GeminiRenderer("", "", shows_thinking=False)
        renderer.ending(0, why)
        return renderer.closing(usage, wants_usage=True)

    def calls_in(self, body: bytes) -> list[CalledTool] | None:
        """Return the tools that a complete answer calls; `None` if it cannot be parsed."""
        try:
            candidates = _answers.decode(body).candidates or ()
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        said = [one.content.parts for one in candidates if one.content is not None]
        calls = [part.function_call for parts in said for part in parts if part.function_call is not None]
        return [called_tool(call.name or "", mark_of(bytes(call.args))) for call in calls]


class GeminiReply(TranslatedReply):
    """Renders the answer to one request of the Gemini API."""

    def __init__(self, facts: ReplyFacts, request: TranslatedChat) -> None:
        assert isinstance(request.origin, GeminiRequest)
        self._new = partial(
            GeminiRenderer, facts.request_id.hex, request.model, shows_thinking=request.origin.shows_thinking
        )
        super().__init__(facts, request, self._new(), None if request.native is None else GeminiStreamTracker())

    def begin_attempt(self, progress: Progress, *, resumes: bool = False) -> None:
        """Count the next attempt's tokens; drop what a failed one produced."""
        super().begin_attempt(progress, resumes=resumes)
        if not resumes:
            self._renderer = self._new()


class GeminiOperation(Operation):
    """The operation of both paths. The path states the model, and whether the answer is a stream."""

    def reader(self, exchange: Exchange, snapshot: Snapshot) -> Callable[[str, bytes], AnyRequest]:
        """Return the reader of a request at this path. Raise InvalidRequest on a stream that is not an event stream."""
        _, verb = model_and_verb(exchange.path)
        if verb == _STREAM and parse_qs(exchange.query, max_num_fields=100).get("alt", [""])[-1] != "sse":
            raise InvalidRequest("streams are server-sent events: add ?alt=sse to the address", param="alt")
        return super().reader(exchange, snapshot)


class GeminiReading(NativeReading):
    """Reads requests of one path, which states the model and whether the answer is a stream."""

    def again(self, request: TranslatedChat, body: bytes) -> TranslatedChat:
        """Read a request again after the gateway has changed its body."""
        return read_untranslated_gemini(request.model, _JSON, body, is_streamed=request.is_streamed)

    def _model_in(self, exchange: Exchange) -> str | None:
        return model_and_verb(exchange.path)[0]

    def _readers(self, exchange: Exchange) -> Readers:
        model, verb = model_and_verb(exchange.path)
        is_streamed = verb == _STREAM
        return Readers(
            partial(read_gemini, model, is_streamed=is_streamed),
            partial(read_untranslated_gemini, model, is_streamed=is_streamed),
            GEMINI_STREAM_PATH if is_streamed else NATIVE_PATHS["gemini"],
        )


def operation_at(path: str) -> Operation | None:
    """Return the operation at a path; `None` if there is none."""
    return _BY_VERB.get(verb_of(path))


def _unread(content_type: str, body: bytes) -> TranslatedChat:
    raise InvalidRequest("the model of this API stands in the path")


def _reply(facts: ReplyFacts, request: AnyRequest) -> Reply:
    assert isinstance(request, TranslatedChat)
    return GeminiReply(facts, request)


_NATIVE: Final = GeminiReading("gemini", _unread, _unread, ())
GENERATE_CONTENT: Final = GeminiOperation(
    "generate_content", CHAT.name, CHAT.path, (), _unread, _reply, GEMINI_ERRORS, native=_NATIVE
)

_BY_VERB: Final[Mapping[str, Operation]] = {
    **dict.fromkeys(_VERBS, GENERATE_CONTENT),
    ONE: EMBED_CONTENT,
    BATCH: BATCH_EMBED_CONTENTS,
}
