"""Extract prompt and answer texts from an exchange's bytes, complete or streamed."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

# The fields of every API's requests, and of whole answers, that hold what was said.
_ASKED: Final = ("system", "instructions", "messages", "prompt", "input", "query", "documents")
_ANSWERED: Final = ("choices", "content", "output")
Redact = Callable[[object], object]


def asked(body: bytes, redact: Redact) -> str:
    """Return what a request asks as JSON text, redacted; empty if the body holds nothing that was said."""
    return _part(_decoded(body), _ASKED, redact)


def answered(sent: bytes, redact: Redact) -> str:
    """Return what an answer says: a stream's texts, each joined first so that nothing hides between two pieces, or
    JSON.

    Choices, thoughts and calls come in turns, piece by piece: each is a text of its own, on lines of its own.
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
    return json.dumps(redact(said), ensure_ascii=False) if said else ""


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _pieces(sent: bytes) -> Iterator[tuple[str, str]]:
    """Yield a stream's pieces of text, each with a name of the text that it belongs to."""
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
