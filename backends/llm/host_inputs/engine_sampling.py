"""Converts sampling parameters, stop conditions and output constraints for an engine host."""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from backends.llm.parameters import refuse_all_but
from contracts.api.chat import GenerationRequest, StructuredOutputs
from contracts.engine.wire import Grammar, ModelHello, Sampling
from contracts.errors import InvalidRequest

_SMALLEST_TOP_P: Final = 1e-6
_MOST_GRAMMAR: Final = 1 << 20  # characters: no engine accepts more
# Accepted fields of nested objects. `include_obfuscation` has no effect: these streams have no padding.
_WITHIN: Final = {
    "stream_options": frozenset({"include_usage", "include_obfuscation"}),
    "structured_outputs": frozenset(StructuredOutputs.__struct_fields__),
}
_object_decoder: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _JsonSchema(msgspec.Struct, frozen=True):
    schema: msgspec.Raw
    name: str = ""


class _ResponseFormat(msgspec.Struct, frozen=True):
    type: str
    json_schema: _JsonSchema | None = None


def refuse_unhonoured(request: GenerationRequest, fields: Mapping[str, msgspec.Raw], honoured: frozenset[str]) -> None:
    """Raise UnsupportedParameter for the first field that no engine host supports, with what to do.

    `fields` are those of the request's body.
    """
    refuse_all_but(request.model, fields, honoured)
    for name, known in _WITHIN.items():
        stated = fields.get(name)
        if stated is not None and bytes(stated) != b"null":
            refuse_all_but(request.model, _object_decoder.decode(stated), known, f"{name}.")


def room_for(request: GenerationRequest, model: ModelHello, prompt_tokens: int, *, is_limit_asked: bool = True) -> int:
    """Return the maximum number of tokens to generate: the request's limit, or else the rest of the context.

    `is_limit_asked`: the limit was set by the caller. Then InvalidRequest is raised if the context leaves less.
    """
    wanted, context = request.output_limit, model.context_tokens
    room = context - prompt_tokens
    if wanted is not None and not (is_limit_asked and request.stated_limits):
        wanted = min(wanted, max(room, 1))  # an API's default, not set by the caller
    if room < 1 or (wanted is not None and wanted > room):
        param = request.prompt_field if room < 1 or wanted is None else "max_tokens"
        raise _too_long(request, model, str(prompt_tokens), wanted, param)
    return room if wanted is None else wanted


def no_room(request: GenerationRequest, model: ModelHello) -> InvalidRequest:
    """Return the error for a prompt that alone exceeds the context. Its exact length was not counted."""
    count = f"more than {model.context_tokens}"
    return _too_long(request, model, count, request.output_limit, request.prompt_field)


def _too_long(
    request: GenerationRequest, model: ModelHello, count: str, wanted: int | None, param: str
) -> InvalidRequest:
    asked = "max_tokens is not given" if wanted is None else f"max_tokens is {wanted}"
    return InvalidRequest(
        f"the prompt has {count} tokens and {asked}; the context of {request.model!r} holds {model.context_tokens} "
        "tokens of both together",
        param=param,
        code="context_length_exceeded",
    )


def sampling_of(request: GenerationRequest, max_tokens: int, logprobs: int | None) -> Sampling:
    """Return the sampling parameters. `logprobs` is the number of alternatives per token; `None`: no log probabilities.

    Raises InvalidRequest with the invalid field.
    """
    min_tokens = request.min_tokens or 0
    if min_tokens > max_tokens:
        raise InvalidRequest(f"min_tokens is {min_tokens}, more than max_tokens, {max_tokens}", param="min_tokens")
    return Sampling(
        max_tokens=max_tokens,
        temperature=1.0 if request.temperature is None else request.temperature,
        top_k=max(request.top_k or 0, 0),
        top_p=1.0 if request.top_p is None else max(request.top_p, _SMALLEST_TOP_P),
        min_p=request.min_p or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=request.repetition_penalty or 1.0,
        seed=request.seed,
        n=request.n or 1,
        min_tokens=min_tokens,
        ignore_eos=request.ignore_eos is True,
        stop_token_ids=request.stop_token_ids or [],
        logit_bias=_logit_bias(request),
        logprobs=logprobs,
    )


def _logit_bias(request: GenerationRequest) -> dict[int, float]:
    found: dict[int, float] = {}
    for name, bias in (request.logit_bias or {}).items():
        if not name.isdecimal() or not name.isascii() or len(name) > 9:
            raise InvalidRequest("a key of logit_bias is not a token id", param="logit_bias")
        found[int(name)] = bias
    return found


def stops_of(request: GenerationRequest) -> list[str]:
    """Return the stop strings. Raises InvalidRequest if one is empty."""
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    if not all(stops):
        raise InvalidRequest("stop holds an empty string", param="stop")
    return stops


def grammar_of(request: GenerationRequest) -> Grammar | None:
    """Return the output constraint, if any. Raises InvalidRequest if several are given or it is too long."""
    if not (request.response_format or _states_more(request)):
        return None
    found = [*_from_response_format(request), *_from_extensions(request)]
    if len(found) > 1:
        names = " and ".join(name for name, _ in found)
        raise InvalidRequest(f"{names} each say what the output must match; give one of them", param=found[1][0])
    if found and len(found[0][1].text) > _MOST_GRAMMAR:
        raise InvalidRequest(
            f"{found[0][0]} has {len(found[0][1].text)} characters, more than the {_MOST_GRAMMAR} that are possible; "
            "make it smaller",
            param=found[0][0].partition(".")[0],
            code="invalid_grammar",
        )
    return found[0][1] if found else None


def _states_more(request: GenerationRequest) -> bool:
    """Return whether any extension field for constraints is set."""
    return not (
        request.structured_outputs is None
        and request.guided_json is None
        and request.guided_regex is None
        and request.guided_choice is None
        and request.guided_grammar is None
    )


def _from_response_format(request: GenerationRequest) -> list[tuple[str, Grammar]]:
    if bytes(request.response_format) in (b"", b"null"):
        return []
    try:
        stated = msgspec.json.decode(request.response_format, type=_ResponseFormat)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"response_format: {error}", param="response_format") from None
    if stated.type == "text":
        return []
    if stated.type == "json_object":
        return [("response_format", Grammar(kind="json_object", text=""))]
    if stated.type == "json_schema" and stated.json_schema is not None:
        return [("response_format", Grammar(kind="json_schema", text=bytes(stated.json_schema.schema).decode()))]
    raise InvalidRequest(
        "response_format.type must be 'text', 'json_object', or 'json_schema' with a json_schema beside it",
        param="response_format",
    )


def _from_extensions(request: GenerationRequest) -> list[tuple[str, Grammar]]:
    outputs = request.structured_outputs
    schemas = [("guided_json", request.guided_json)]
    regexes = [("guided_regex", request.guided_regex)]
    choices = [("guided_choice", request.guided_choice)]
    grammars = [("guided_grammar", request.guided_grammar)]
    if outputs is not None:
        schemas.append(("structured_outputs.json", outputs.json))
        regexes.append(("structured_outputs.regex", outputs.regex))
        choices.append(("structured_outputs.choice", outputs.choice))
        grammars.append(("structured_outputs.grammar", outputs.grammar))
    found = [(name, _schema(stated)) for name, stated in schemas if stated is not None]
    found += [(name, Grammar(kind="regex", text=text)) for name, text in regexes if text is not None]
    found += [
        (name, Grammar(kind="choice", text=json.dumps(options))) for name, options in choices if options is not None
    ]
    found += [(name, Grammar(kind="lark", text=text)) for name, text in grammars if text is not None]
    if outputs is not None and outputs.json_object:
        found.append(("structured_outputs.json_object", Grammar(kind="json_object", text="")))
    return found


def _schema(stated: dict[str, Any] | str) -> Grammar:
    return Grammar(kind="json_schema", text=stated if isinstance(stated, str) else json.dumps(stated))
