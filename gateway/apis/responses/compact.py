"""POST /v1/responses/compact: shortens a history, only at targets that speak the Responses API."""

from typing import Final

import msgspec

from contracts.api.chat import TranslatedChat
from contracts.api.native import NativeBody
from contracts.api.requests import AnyRequest
from contracts.errors import InvalidRequest, NotOffered
from gateway.apis.native.reading import NativeReading
from gateway.apis.operations import CHAT, Operation
from gateway.apis.responses.asked import AskedResponse
from gateway.apis.responses.operation import RESPONSE_ERRORS, read_response
from gateway.apis.responses.rendering import ResponseFacts, ResponseRenderer
from gateway.apis.responses.stream_tracker import ResponseStreamTracker
from gateway.apis.responses.untranslated import read_untranslated_response
from gateway.replies.reply import Reply, ReplyFacts
from gateway.replies.translated_reply import TranslatedReply

_PATH: Final = "/responses/compact"


_REFUSED: Final = NotOffered(
    "this model's targets cannot compact a prompt: only those that speak the Responses API can "
    "(apis: [responses] in a target's settings)",
    param="model",
)


def _read_refused(content_type: str, body: bytes) -> AnyRequest:
    """Read a request that targets of other APIs refuse; other errors of request or caller are reported first."""
    native = NativeBody(api="responses", path=_PATH, body=body, refusal=_REFUSED)
    return msgspec.structs.replace(_whole_history(read_response(content_type, body)), native=native)


def _read_untranslated(content_type: str, body: bytes) -> TranslatedChat:
    return _whole_history(read_untranslated_response(content_type, body))


def _whole_history(request: TranslatedChat) -> TranslatedChat:
    """Return a request with all of its history in it. Raises InvalidRequest if it refers to a stored response."""
    assert isinstance(request.origin, AskedResponse)
    if request.origin.request.previous_response_id is not None:
        raise InvalidRequest(
            "previous_response_id is not taken here; give the whole history as input", param="previous_response_id"
        )
    return request


def _reply(facts: ReplyFacts, request: AnyRequest) -> Reply:
    assert isinstance(request, TranslatedChat) and isinstance(request.origin, AskedResponse)
    about = ResponseFacts(facts.request_id, facts.created_unix, facts.clock, request.origin, request)
    return TranslatedReply(facts, request, ResponseRenderer(about), ResponseStreamTracker())


COMPACT: Final = Operation(
    api="responses",
    name=CHAT.name,
    path=CHAT.path,
    paths=("/v1/responses/compact",),
    read=_read_refused,
    reply=_reply,
    errors=RESPONSE_ERRORS,
    native=NativeReading("responses", _read_refused, _read_untranslated, ((b"openai-beta", ""),), _PATH),
)
