"""POST /v1/responses, and /v1/responses/input_tokens, which counts the tokens of its input."""

from functools import partial
from typing import Final

import msgspec

from contracts.api.chat import TranslatedChat
from contracts.api.ignored_fields import ignored_in
from contracts.api.requests import AnyRequest
from gateway.apis.messages.count_tokens import Counting
from gateway.apis.native.reading import NativeReading
from gateway.apis.operations import Operation
from gateway.apis.rendering import ErrorShape, error_body, error_event
from gateway.apis.responses.keeper import ResponseKeeper
from gateway.apis.responses.reading import read_asked
from gateway.apis.responses.reply import ResponseReply
from gateway.apis.responses.tools import is_left_out
from gateway.apis.responses.translation import unresolved_chat
from gateway.apis.responses.untranslated import read_untranslated_response
from gateway.apis.responses.wording import in_own_words
from gateway.replies.reply import Reply, ReplyFacts

PATH: Final = "/v1/responses"
COUNTING_PATH: Final = "/v1/responses/input_tokens"


def responses(keeper: ResponseKeeper) -> Operation:
    """Return the operation of POST /v1/responses. `keeper` stores its responses."""
    return Operation(
        api="responses",
        name="chat",
        path="/chat/completions",
        paths=(PATH,),
        read=read_response,
        reply=partial(_reply, keeper),
        errors=RESPONSE_ERRORS,
        resolve=keeper.resolve,
        keeps=True,
        native=NativeReading("responses", read_response, read_untranslated_response, ((b"openai-beta", ""),)),
    )


RESPONSE_ERRORS: Final = ErrorShape(
    lambda error: error_body(in_own_words(error)), lambda error: error_event(in_own_words(error))
)


def read_response(content_type: str, body: bytes) -> TranslatedChat:
    """Read a request as a chat. Raises InvalidRequest, MalformedBody or UnsupportedMediaType."""
    asked = read_asked(content_type, body)
    tools = asked.request.tools or ()
    left_out = [f"tools[{place}]" for place, tool in enumerate(tools) if is_left_out(tool)]
    return msgspec.structs.replace(unresolved_chat(asked), dropped=(*ignored_in("responses", body), *left_out))


def _reply(keeper: ResponseKeeper, facts: ReplyFacts, request: AnyRequest) -> Reply:
    assert isinstance(request, TranslatedChat)
    return ResponseReply(facts, request, keeper)


def responses_counting(operation: Operation) -> Counting:
    """Return the token counting for requests of `operation`."""
    return Counting(COUNTING_PATH, operation, operation.read, _counted)


def _counted(tokens: int) -> object:
    return {"object": "response.input_tokens", "input_tokens": tokens}
