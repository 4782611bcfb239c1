"""Requests a stream from the target for a whole answer: which requests and targets allow that, and the changed call."""

from dataclasses import replace
from typing import Any, Final

import msgspec

from backends.llm.base import ModelCall
from backends.llm.parameters import fields_of
from contracts.api.chat import GenerationRequest, TranslatedChat
from contracts.api.requests import AnyRequest
from contracts.errors import UpstreamRejected
from contracts.serving.configuration import TargetSpec

# Fields that have no effect in streams, or with which servers refuse to stream, and their values without effect.
_WHOLE_ONLY: Final[dict[str, tuple[object, ...]]] = {
    "audio": (None,),
    "best_of": (None, 1),
    "kv_transfer_params": (None,),
    "modalities": (None, ["text"]),
    "prompt_logprobs": (None,),
    "return_hidden_states": (None, False),
    "stream_options": (None,),
    "use_beam_search": (None, False),
}
_NAMES: Final = tuple(f'"{name}"'.encode() for name in _WHOLE_ONLY)


def can_stream(spec: TargetSpec) -> bool:
    """Return whether a target streams, as far as its settings tell."""
    if spec.kind == "openai_http":
        refused = spec.settings.get("refuses")
        return not (isinstance(refused, list | tuple | set | frozenset) and {"stream", "stream_options"} & set(refused))
    if spec.kind == "litellm":
        parameters = spec.settings.get("params")
        return not (isinstance(parameters, dict) and parameters.get("stream") is False)
    return False


def may_be_streamed(request: AnyRequest, body: bytes) -> bool:
    """Return whether a stream can replace the whole answer that a request asks for, without losing anything."""
    if not isinstance(request, GenerationRequest) or request.is_streamed:
        return False
    if isinstance(request, TranslatedChat) and request.native is not None:
        return False  # it may be passed on unchanged
    if not any([name in body for name in _NAMES]):
        return True
    try:
        fields = fields_of(body)
        return all([msgspec.json.decode(fields[one]) in idle for one, idle in _WHOLE_ONLY.items() if one in fields])
    except (msgspec.MsgspecError, RecursionError):
        return False


def streamed(call: ModelCall) -> ModelCall:
    """Return the call changed to request a stream. Usage reporting is switched on when its body is built."""
    request = call.request
    assert isinstance(request, GenerationRequest)
    changed: dict[str, Any] = {"stream": True, "stream_options": None}
    if isinstance(request, TranslatedChat):
        changed["chat_body"] = _with_stream(request.chat_body)
        if request.marked_body:
            changed["marked_body"] = _with_stream(request.marked_body)
    return replace(
        call,
        request=msgspec.structs.replace(request, **changed),
        body=call.body if isinstance(request, TranslatedChat) else _with_stream(call.body),
        takes_whole=True,
    )


def refuses_stream(error: UpstreamRejected) -> bool:
    """Return whether a server refused a request because of streaming.

    Servers have no error code for this, so the field or the message is searched for "stream".
    """
    return "stream" in (error.param or "") or "stream" in error.quote.lower()


def _with_stream(body: bytes) -> bytes:
    fields = fields_of(body)
    fields.pop("stream_options", None)
    fields["stream"] = msgspec.Raw(b"true")
    return msgspec.json.encode(fields)
