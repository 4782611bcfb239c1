"""OpenAI's JSON, written: errors, whole answers, stream chunks. Pure functions of facts."""

from typing import Final

import msgspec

from contracts.errors import TollkeeperError
from contracts.generation import Delta
from contracts.usage import Usage, openai_usage

_encoder: Final = msgspec.json.Encoder()
_string: Final = _encoder.encode

DONE: Final = b"data: [DONE]\n\n"


def error_object(error: TollkeeperError) -> dict[str, object]:
    """Give an error as OpenAI's error object."""
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.error_code}}


def error_body(error: TollkeeperError) -> bytes:
    """Render an error as a JSON body."""
    return _encoder.encode(error_object(error))


def error_event(error: TollkeeperError) -> bytes:
    """Render an error as the event that ends a stream which had begun."""
    return b"data: %b\n\n" % error_body(error)


class StreamRenderer:
    """Renders one stream's chunks. What all chunks share is encoded once."""

    def __init__(self, reply_id: str, created_unix: int, model: str) -> None:
        self._prefix = b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,' % (
            _string(reply_id),
            created_unix,
            _string(model),
        )

    def role(self, index: int) -> bytes:
        """Render the chunk that opens a choice."""
        return self._choice(index, b'{"role":"assistant","content":""}', b"null")

    def delta(self, delta: Delta) -> bytes:
        """Render a piece of one choice, and its end where the delta carries one."""
        fields = []
        if delta.reasoning:
            fields.append(b'"reasoning_content":' + _string(delta.reasoning))
        if delta.text:
            fields.append(b'"content":' + _string(delta.text))
        finish = _string(delta.finish_reason) if delta.finish_reason else b"null"
        return self._choice(delta.index, b"{" + b",".join(fields) + b"}", finish)

    def usage(self, usage: Usage) -> bytes:
        """Render the usage chunk that `stream_options.include_usage` asks for."""
        return self._prefix + b'"choices":[],"usage":' + _encoder.encode(openai_usage(usage)) + b"}\n\n"

    def _choice(self, index: int, delta: bytes, finish: bytes) -> bytes:
        return self._prefix + b'"choices":[{"index":%d,"delta":%b,"logprobs":null,"finish_reason":%b}]}\n\n' % (
            index,
            delta,
            finish,
        )


class WholeChoice(msgspec.Struct, gc=False):
    """One choice of a whole answer while it is being put together."""

    text: list[str]
    reasoning: list[str]
    finish_reason: str | None = None


def whole_reply(reply_id: str, created_unix: int, model: str, choices: list[WholeChoice], usage: Usage) -> bytes:
    """Render a complete chat completion."""
    return _encoder.encode(
        {
            "id": reply_id,
            "object": "chat.completion",
            "created": created_unix,
            "model": model,
            "choices": [
                {
                    "index": index,
                    "message": _message(choice),
                    "logprobs": None,
                    "finish_reason": choice.finish_reason,
                }
                for index, choice in enumerate(choices)
            ],
            "usage": openai_usage(usage),
        }
    )


def _message(choice: WholeChoice) -> dict[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": "".join(choice.text), "refusal": None}
    if choice.reasoning:
        message["reasoning_content"] = "".join(choice.reasoning)
    return message


def model_list(models: list[tuple[str, int]]) -> bytes:
    """Render GET /v1/models from pairs of model id and Unix time of creation."""
    return _encoder.encode({"object": "list", "data": [_model(name, created) for name, created in models]})


def model_object(name: str, created_unix: int) -> bytes:
    """Render GET /v1/models/{id}."""
    return _encoder.encode(_model(name, created_unix))


def _model(name: str, created_unix: int) -> dict[str, object]:
    return {"id": name, "object": "model", "created": created_unix, "owned_by": "tollkeeper"}
