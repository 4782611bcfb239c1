"""Other resources of the Gemini API: the list of models, and token counts."""

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from contracts.access.endpoints import Endpoint
from contracts.api.requests import AnyRequest
from contracts.errors import InvalidRequest, UnknownModel
from contracts.serving.configuration import KeyEntry, Snapshot
from gateway.apis.gemini.errors import GEMINI_ERRORS
from gateway.apis.gemini.models import model_body, model_page
from gateway.apis.gemini.operation import GENERATE_CONTENT
from gateway.apis.gemini.paths import MODELS, is_gemini, model_and_verb, models_path
from gateway.apis.gemini.reading import read_gemini
from gateway.apis.messages.count_tokens import Counting
from gateway.replies.reply import JSON
from gateway.wire.exchange import Exchange

_COUNT: Final = ":countTokens"


class GeminiCounting(Counting):
    """Token counting in this API. The path contains the model."""

    def answers(self, path: str) -> bool:
        """Return whether a path counts tokens."""
        return is_gemini(path) and path.endswith(_COUNT)

    def reader(self, exchange: Exchange, snapshot: Snapshot) -> Callable[[str, bytes], AnyRequest]:
        """Return the reader of a prompt: a request, or only its contents."""
        return partial(_read_prompt, model_and_verb(exchange.path)[0])


def _read_prompt(model: str, content_type: str, body: bytes) -> AnyRequest:
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError):
        fields = {}
    inner = fields.get("generateContentRequest") or fields.get("generate_content_request")
    return read_gemini(model, content_type, body if inner is None else bytes(inner), is_streamed=False)


def _unread(content_type: str, body: bytes) -> AnyRequest:
    raise InvalidRequest("the model of this API stands in the path")


GEMINI_COUNTING: Final = GeminiCounting(MODELS, GENERATE_CONTENT, _unread, lambda tokens: {"totalTokens": tokens})


class GeminiModels:
    """Answers GET /v1beta/models and /v1beta/models/{model}. `/v1/models` also belongs to OpenAI's API and is answered
    elsewhere.
    """

    endpoint: Endpoint = "generate_content"
    errors = GEMINI_ERRORS

    def methods(self, path: str) -> tuple[str, ...]:
        """Return the methods that the path supports."""
        return ("GET",) if models_path(path) is not None else ()

    async def answer(self, exchange: Exchange, key: KeyEntry, snapshot: Snapshot) -> None:
        """List the models that the key may use, or show one. Raises UnknownModel."""
        named, visible = ((b"x-request-id", exchange.request_id),), snapshot.names(key.models)
        name = models_path(exchange.path)
        if not name:
            exchange.send(200, JSON, model_page(visible), named)
            return
        if name not in visible:
            raise UnknownModel(f"the model {name[:80]!r} does not exist or is not for this key", param="model")
        exchange.send(200, JSON, model_body(name), named)
