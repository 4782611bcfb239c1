"""Request parameters that a target does not support, and the errors that name them."""

from collections.abc import Mapping
from typing import Final

import msgspec

from contracts.errors import UnsupportedParameter

_MAX_SHOWN: Final = 60
_fields_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_decode: Final = msgspec.json.decode

# Fields that do not change the answer: user, keys of a provider's cache, metadata.
IDLE: Final = frozenset(
    {"metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "user"}
)

# Default values, which have no effect. For other fields, false and empty values have no effect.
_AS_ALWAYS: Final[Mapping[str, tuple[object, ...]]] = {
    "add_generation_prompt": (True,),
    "add_special_tokens": (),  # what is usual depends on the API
    "best_of": (1,),
    "frequency_penalty": (0,),
    "function_call": ("auto", "none"),
    "include_reasoning": (True,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "n": (1,),
    "parallel_tool_calls": (True,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "service_tier": ("auto", "default", "standard_only"),
    "skip_special_tokens": (True,),
    "speed": ("standard",),
    "spaces_between_special_tokens": (True,),
    "temperature": (1,),
    "top_k": (0, -1),
    "top_p": (1,),
    "verbosity": ("medium",),
}
_NOTHING: Final = (b"false", b"[]", b'""')

_REMEDIES: Final[Mapping[str, str]] = {
    "function_call": "use tool_choice in its place",
    "functions": "use tools in its place",
    "store": "leave it out, or use POST /v1/responses, whose answers can be kept",
}


def fields_of(body: bytes) -> dict[str, msgspec.Raw]:
    """Return a body's fields, undecoded."""
    return _fields_decoder.decode(body)


def asks_for_something(name: str, value: msgspec.Raw) -> bool:
    """Return whether a field has an effect: `null` and default values have none."""
    given = bytes(value)
    if given == b"null":
        return False
    usual = _AS_ALWAYS.get(name)
    return given not in _NOTHING if usual is None else _decode(given) not in usual


def refuse_all_but(model: str, fields: Mapping[str, msgspec.Raw], honoured: frozenset[str], within: str = "") -> None:
    """Raise UnsupportedParameter for a field with an effect that is not in `honoured`, with what to do.

    `within` is the position in the request, such as "messages[0].".
    """
    for name, value in fields.items():
        if name not in honoured and asks_for_something(name, value):
            raise unsupported(model, within + name)


def refuse_named(model: str, fields: Mapping[str, msgspec.Raw], refused: frozenset[str]) -> None:
    """Raise UnsupportedParameter if one of the `refused` fields has a value that would change the answer."""
    for name in fields.keys() & refused:
        if asks_for_something(name, fields[name]):
            raise unsupported(model, name)


def unsupported(model: str, name: str) -> UnsupportedParameter:
    """Return the error for a field that a model's target does not support."""
    shown = name[:_MAX_SHOWN]
    remedy = _REMEDIES.get(name, "leave it out")
    return UnsupportedParameter(f"{shown} is not supported for the model {model!r}; {remedy}", param=shown)
