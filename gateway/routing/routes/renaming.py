"""A request rewritten for one model: the body contains the model's name instead of the route's."""

from collections.abc import Mapping
from typing import Final, overload

import msgspec

from contracts.api.chat import ChatRequest, TranslatedChat
from contracts.api.requests import AnyRequest

_fields_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder: Final = msgspec.json.Encoder()


@overload
def renamed(request: TranslatedChat, model: str) -> TranslatedChat: ...
@overload
def renamed(request: AnyRequest, model: str) -> AnyRequest: ...
def renamed(request: AnyRequest, model: str) -> AnyRequest:
    """Return the request for another model."""
    if isinstance(request, TranslatedChat):
        return _translated(request, {"model": model}, model=model)
    return msgspec.structs.replace(request, model=model)


def renamed_body(body: bytes, model: str) -> bytes:
    """Return a request's JSON for another model; every other field stays byte for byte."""
    return _with_fields(body, {"model": model})


def asked_whole(request: ChatRequest, body: bytes, *, wants_logprobs: bool) -> tuple[ChatRequest, bytes]:
    """Return a chat, and its JSON, as requested in one piece; with log-probabilities if wanted."""
    fields: dict[str, object] = {"stream": None, "stream_options": None}
    if wants_logprobs:
        fields["logprobs"] = True
    if isinstance(request, TranslatedChat):
        return _translated(request, fields, **fields), body
    return msgspec.structs.replace(request, **fields), _with_fields(body, fields)


def _translated(request: TranslatedChat, fields: Mapping[str, object], **changes: object) -> TranslatedChat:
    marked = request.marked_body
    return msgspec.structs.replace(
        request,
        chat_body=_with_fields(request.chat_body, fields),
        marked_body=_with_fields(marked, fields) if marked else marked,
        **changes,
    )


def _with_fields(body: bytes, fields: Mapping[str, object]) -> bytes:
    """Set fields of a JSON object, and remove those whose value is `None`."""
    found = _fields_decoder.decode(body)
    for name, value in fields.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = msgspec.Raw(_encoder.encode(value))
    return _encoder.encode(found)
