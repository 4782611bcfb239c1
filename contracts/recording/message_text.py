"""Extract prompt and answer texts from an exchange's bytes, complete or streamed."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

# The fields of every API's requests and complete answers that contain prompts or answers.
_ASKED: Final = ("system", "instructions", "messages", "prompt", "input", "query", "documents")
_ANSWERED: Final = ("choices", "content", "output")
Redact = Callable[[object], object]

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode


def prompt_text(body: bytes, redact: Redact) -> str:
    """Return a request's prompt as JSON text, redacted; empty if the body contains none."""
    return _part(_decoded(body), _ASKED, redact)


def answer_text(sent: bytes, redact: Redact) -> str:
    """Return an answer's text: a stream's texts, each joined first so that nothing is hidden between two pieces, or
    JSON.

    Choices, thoughts and calls arrive interleaved: each is a separate text, on separate lines.
    """
    if sent.lstrip()[:6] in (b"data: ", b"event:", b"data:{"):
        texts: dict[str, list[str]] = {}
        for whose, piece in _pieces(sent):
            texts.setdefault(whose, []).append(piece)
        return "\n".join(str(redact("".join(pieces))) for pieces in texts.values())
    return _part(_decoded(sent), _ANSWERED, redact)


def _part(value: object, names: tuple[str, ...], redact: Redact) -> str:
    if not isinstance(value, dict):
        return ""
    said = {name: value[name] for name in names if name in value}
    if not said:
        return ""
    redacted = redact(said)
    try:
        return _encode(redacted).decode()
    except (msgspec.MsgspecError, ValueError, RecursionError):  # half of a surrogate pair
        return json.dumps(redacted, ensure_ascii=False)


def _decoded(body: bytes) -> Any:
    try:
        return _decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        try:  # accepts half of a surrogate pair as well
            return json.loads(body)
        except (ValueError, RecursionError):
            return None


def _pieces(sent: bytes) -> Iterator[tuple[str, str]]:
    """Yield a stream's pieces of text, each with the name of the text that it belongs to."""
    for line in sent.splitlines():
        if not line.startswith(b"data:"):
            continue
        event = _decoded(line[5:])
        if isinstance(event, dict):
            for choice in event.get("choices") or ():
                yield from _texts(f"choice {choice.get('index')}", choice.get("delta") or choice)
            delta = event.get("delta")
            part = f"part {event.get('index')} {event.get('output_index')} {event.get('content_index')}"
            if isinstance(delta, str):
                yield f"{part} {event.get('type')}", delta
            elif isinstance(delta, dict):
                yield from _texts(part, delta)


def _texts(whose: str, delta: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("reasoning_content", "reasoning", "thinking", "content", "text", "partial_json"):
        if isinstance(delta.get(name), str):
            yield f"{whose} {name}", delta[name]
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        for name in ("name", "arguments"):
            if isinstance(function.get(name), str):
                yield f"{whose} call {call.get('index')} {name}", function[name]
