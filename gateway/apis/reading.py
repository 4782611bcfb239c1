"""Parses request bodies into typed requests. Errors name the field."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, get_args

import msgspec

from backends.llm.http.native_body import repeats_a_field
from contracts.access.identity import MAX_TAG_LENGTH, MAX_TAGS
from contracts.api.chat import ChatRequest, GenerationRequest, ReasoningEffort, Role
from contracts.api.completion import MAX_TEXTS, CompletionRequest
from contracts.api.embedding import MAX_INPUTS, EmbeddingRequest
from contracts.api.rerank import RerankRequest, ScoreRequest, check_sides
from contracts.errors import InvalidRequest, MalformedBody, UnsupportedMediaType
from contracts.pricing.service_tiers import BATCH, UNKNOWN_TIER
from contracts.rules.limits import PRIORITY_CLASSES, PriorityClass

_decode_chat: Final = msgspec.json.Decoder(ChatRequest).decode  # under its own name: every chat's way leads through it
_completion_decoder: Final = msgspec.json.Decoder(CompletionRequest)
_embedding_decoder: Final = msgspec.json.Decoder(EmbeddingRequest)
_rerank_decoder: Final = msgspec.json.Decoder(RerankRequest)
_score_decoder: Final = msgspec.json.Decoder(ScoreRequest)
_AT_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_PATH: Final = re.compile(r" - at `(\$[^`]*)`$")
_UNKNOWN: Final = re.compile(r"contains unknown field `([^`]*)`$")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
Choices = Mapping[str, tuple[str, ...]]  # what an enumerated field may be, by its path or its last name
_CHOICES: Final[Choices] = {
    "role": get_args(Role),
    "reasoning_effort": get_args(ReasoningEffort),
    "encoding_format": ("float", "base64"),
    "stream_format": ("audio", "sse"),
}
_JSON: Final = "application/json"
_MAX_SHOWN: Final = 60
_SAID_ONCE: Final = ("model", "max_tokens", "max_completion_tokens")
_UNSEEN: Final = object()
_DAY_MS: Final = 86_400_000
_LATENCY_DIGITS: Final = 9

RequestT = TypeVar("RequestT")


def read_chat(content_type: str, body: bytes) -> ChatRequest:
    """Read the body of POST /v1/chat/completions.

    Raises UnsupportedMediaType, MalformedBody (with the byte), or InvalidRequest (with field, value and limit).
    """
    request = _read(_decode_chat, content_type, body, _CHOICES)
    _check_once(body)
    _check_stream_options(request)
    _check_tier(request)
    return request


def read_completion(content_type: str, body: bytes) -> CompletionRequest:
    """Read the body of POST /v1/completions. Raises as `read_chat`, and if it asks for more texts than allowed."""
    request = read_body(_completion_decoder, content_type, body)
    _check_once(body)
    _check_stream_options(request)
    _check_tier(request)
    for place, prompt in enumerate(request.prompts):
        if prompt == []:
            raise InvalidRequest(f"prompt[{place}] is an empty list of token ids", param="prompt")
    _check_texts(request)
    return request


def read_embedding(content_type: str, body: bytes) -> EmbeddingRequest:
    """Read the body of POST /v1/embeddings. Raises as `read_chat`, and if it has more inputs than allowed."""
    request = read_body(_embedding_decoder, content_type, body)
    _check_once(body)
    if not request.input:
        raise InvalidRequest("input is empty; give a text, token ids, or a list of either", param="input")
    if request.input_count > MAX_INPUTS:
        raise InvalidRequest(
            f"input has {request.input_count} entries; at most {MAX_INPUTS} are allowed", param="input"
        )
    return request


def read_rerank(content_type: str, body: bytes) -> RerankRequest:
    """Read the body of POST /v1/rerank. Raises as `read_chat`, and if it has no documents or too many."""
    request = read_body(_rerank_decoder, content_type, body)
    check_sides(request)
    return request


def read_score(content_type: str, body: bytes) -> ScoreRequest:
    """Read the body of POST /v1/score. Raises as `read_chat`, and if its two sides cannot be paired."""
    request = read_body(_score_decoder, content_type, body)
    check_sides(request)
    return request


def _check_stream_options(request: GenerationRequest) -> None:
    if request.stream_options is not None and request.stream is not True:
        raise InvalidRequest("stream_options is only allowed when stream is true", param="stream_options")


def _check_tier(request: GenerationRequest) -> None:
    """Refuse a service tier that is not a name, or that single requests cannot have: it would be priced as such."""
    if request.service_tier is None and request.speed is None:
        return
    if request.asked_tier == UNKNOWN_TIER:
        raise InvalidRequest(
            "service_tier or speed is not a name of a tier; use letters, digits, '_', '.' and '-'", param="service_tier"
        )
    if request.asked_tier == BATCH:
        raise InvalidRequest(
            "service_tier 'batch' is not offered for single requests; leave it out, or use POST /v1/batches",
            param="service_tier",
        )


def _check_texts(request: CompletionRequest) -> None:
    """Verify that a completion does not generate more texts than allowed."""
    choices = request.n or 1
    best_of = request.best_of or choices
    if best_of < choices:
        raise InvalidRequest(f"best_of is {best_of}; it must be at least n, {choices}", param="best_of")
    if best_of > choices and request.is_streamed:
        raise InvalidRequest(
            f"best_of is {best_of} and n is {choices}: the best are known at the end only; set stream to false",
            param="best_of",
        )
    texts = request.choice_count
    if not texts:
        raise InvalidRequest("prompt is empty; give a text, token ids, or a list of either", param="prompt")
    if texts > MAX_TEXTS:
        raise InvalidRequest(
            f"prompt has {texts // best_of} entries and asks for {best_of} answers to each, together {texts}; "
            f"at most {MAX_TEXTS} are allowed",
            param="prompt",
        )


def read_body(
    decoder: "msgspec.json.Decoder[RequestT]", content_type: str, body: bytes, choices: Choices = _CHOICES
) -> RequestT:
    """Read a JSON body. Raises UnsupportedMediaType, MalformedBody (with the byte), InvalidRequest (with the field)."""
    return _read(decoder.decode, content_type, body, choices)


def _read(decode: Callable[[bytes], RequestT], content_type: str, body: bytes, choices: Choices) -> RequestT:
    if content_type != _JSON and content_type.partition(";")[0].strip().lower() != _JSON:
        shown = content_type or "none"
        raise UnsupportedMediaType(f"the content type is {shown[:_MAX_SHOWN]!r}; send application/json")
    try:
        if not body.isascii():
            body.decode()  # what is not kept is passed on unread, and must be UTF-8 as well
        return decode(body)
    except msgspec.ValidationError as error:
        raise invalid_field(str(error), body, choices) from None
    except msgspec.DecodeError as error:
        raise _malformed(str(error), body) from None
    except UnicodeDecodeError:
        raise MalformedBody("the body contains bytes that are not UTF-8") from None
    except RecursionError:
        raise MalformedBody("the body is nested too deeply") from None


def _check_once(body: bytes) -> None:
    """Refuse a body that states the model or the token limit twice: a server may use the one that was not checked."""
    limits_from = body.find(b"_")  # found in a tenth of the time that a word takes, and in prose there is none
    if body.count(b'"model"') > 1 or (limits_from >= 0 and body.count(b'_tokens"', limits_from) > 1):
        _refuse_repeated(body)
    elif body.find(b"\\") >= 0 and body.find(b"\\u00") >= 0:  # a name may be written with escapes
        _refuse_repeated(body)


def _refuse_repeated(body: bytes) -> None:
    if not repeats_a_field(body):
        return
    names: list[str] = []
    json.loads(body, object_pairs_hook=lambda pairs: names.__setitem__(slice(None), [name for name, _ in pairs]))
    for name in _SAID_ONCE:
        if names.count(name) > 1:
            raise InvalidRequest(f"the body has the field {name!r} twice; send it once", param=name)


def read_tags(header: str) -> dict[str, str]:
    """Parse `x-tollkeeper-tags: key=value, key=value`. Raises InvalidRequest if there are more tags than a record can
    store.
    """
    tags: dict[str, str] = {}
    if not header:
        return tags
    for pair in filter(None, (piece.strip() for piece in header.split(","))):
        key, equals, value = pair.partition("=")
        key, value = key.strip(), value.strip()
        if not equals or not key or len(key) > MAX_TAG_LENGTH or len(value) > MAX_TAG_LENGTH:
            raise InvalidRequest(
                f"tag {pair[:_MAX_SHOWN]!r} must be key=value with at most {MAX_TAG_LENGTH} characters a side",
                param="x-tollkeeper-tags",
            )
        tags[key] = value
    if len(tags) > MAX_TAGS:
        raise InvalidRequest(f"{len(tags)} tags given; at most {MAX_TAGS} are allowed", param="x-tollkeeper-tags")
    return tags


def read_priority(header: str, best: PriorityClass) -> PriorityClass:
    """Parse `x-tollkeeper-priority`: the requested class, at most the key's highest, which is the default.

    Raises InvalidRequest if it is not a class.
    """
    if not header:
        return best
    for rank, name in enumerate(PRIORITY_CLASSES):
        if header == name:
            return PRIORITY_CLASSES[max(rank, PRIORITY_CLASSES.index(best))]
    raise InvalidRequest(
        f"the priority is {header[:_MAX_SHOWN]!r}; it is one of {', '.join(PRIORITY_CLASSES)}",
        param="x-tollkeeper-priority",
    )


def read_latency_budget(header: str) -> int | None:
    """Parse `x-tollkeeper-latency-budget-ms`: the milliseconds in which the caller wants the complete answer.

    Raises InvalidRequest if it is not an integer from 1 to a day.
    """
    if not header:
        return None
    if header.isascii() and header.isdecimal() and len(header) <= _LATENCY_DIGITS and 1 <= int(header) <= _DAY_MS:
        return int(header)
    raise InvalidRequest(
        f"the latency budget is {header[:_MAX_SHOWN]!r}; it is whole milliseconds, 1 to {_DAY_MS}",
        param="x-tollkeeper-latency-budget-ms",
    )


def read_retries(header: str) -> int | None:
    """Read the client's number of earlier tries from `x-stainless-retry-count`; `None` if the header is missing."""
    return int(header) if header.isascii() and header.isdecimal() and len(header) < 4 else None


def unknown_parameter(name: str) -> InvalidRequest:
    """Return the error for an unknown field; its name is shown up to 60 characters."""
    shown = name[:_MAX_SHOWN]
    return InvalidRequest(f"unknown parameter: {shown!r}", param=shown, code="unknown_parameter")


def _malformed(message: str, body: bytes) -> MalformedBody:
    if "truncated" in message:  # of an escaped surrogate with fewer than six bytes behind it, too
        padded = _refusal_of(body + b" " * 6)
        message = padded if "surrogate" in padded else message
    found = _AT_BYTE.search(message)
    position = int(found.group(1)) if found else len(body)
    reason = (
        "it ends too early"
        if "truncated" in message
        else message.partition(" (byte")[0].removeprefix("JSON is malformed: ")
    )
    remedy = "; send both escapes of the pair, or leave the character out" if "surrogate" in reason else ""
    return MalformedBody(f"the body is not valid JSON: {reason}, at byte {position} of {len(body)}{remedy}")


def _refusal_of(body: bytes) -> str:
    """Return the JSON decoder's message about a body; empty if it can be decoded."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return str(error)
    return ""


def invalid_field(message: str, body: bytes, choices: Choices = _CHOICES, below: str = "") -> InvalidRequest:
    """Return the error for an invalid field: its path, its value and the limit. Of a text only the length is shown.

    `below`: the path in the body at which the decoder started, such as "input[3]"; empty for the whole body.
    """
    if below:
        placed = message if " - at `$" in message else f"{message} - at `$`"
        message = placed.replace(" - at `$", f" - at `$.{below}")
    found = _PATH.search(message)
    if found is None:
        missing = re.search(r"missing required field `([^`]+)`", message)
        if missing:
            return InvalidRequest(f"{missing.group(1)} is required", param=missing.group(1))
        unknown = _UNKNOWN.search(message)
        if unknown:
            return unknown_parameter(unknown.group(1))
        return InvalidRequest(f"the body is not a request: {message}")
    path = found.group(1)
    param = path.removeprefix("$").lstrip(".") or None
    expected = message[: found.start()].replace("`", "")
    if "nvalid enum value" in expected or "nvalid value" in expected:
        # msgspec repeats the value, which may be prompt text in the wrong place.
        known = choices.get(param or "") or choices.get(path.rpartition(".")[2], ())
        expected = f"expected one of {', '.join(known)}"
    value = _value_at(path, body)
    given = f"{param} is {_shown(value)}: " if param and value is not _UNSEEN else f"{param}: " if param else ""
    return InvalidRequest(f"{given}{expected[:1].lower()}{expected[1:]}", param=param)


def _value_at(path: str, body: bytes) -> Any:
    """Return the value at a path of the body. Only called for a refusal, so a second parse does not matter."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _UNSEEN  # what follows the field is broken as well
    for name, index in _STEP.findall(path.removeprefix("$")):
        try:
            value = value[int(index)] if index else value[name]
        except (LookupError, TypeError):
            return _UNSEEN
    return value


def _shown(value: Any) -> str:
    # Numbers and booleans are shown; text may be the prompt and is described instead.
    if isinstance(value, bool) or value is None:
        return str(value).lower() if value is not None else "null"
    if isinstance(value, int | float):
        return str(value)[:_MAX_SHOWN]
    if isinstance(value, str):
        return f"a string of {len(value)} characters"
    return f"an array of {len(value)}" if isinstance(value, list) else "an object"
