"""What was said in an exchange, found in its bytes: what was asked, and what was answered, whole or as a stream."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

# The fields of every API's requests, and of whole answers, that hold what was said.
_ASKED: Final = ("system", "instructions", "messages", "prompt", "input", "query", "documents")
_ANSWERED: Final = ("choices", "content", "output")
Redact = Callable[[object], object]


def asked(body: bytes, redact: Redact) -> str:
    """Give what a request asks as JSON text, redacted; empty where the body holds nothing that was said."""
    return _part(_decoded(body), _ASKED, redact)


def answered(sent: bytes, redact: Redact) -> str:
    """Give what an answer says: a stream's text, joined first so that nothing hides between two pieces, else JSON."""
    if sent.lstrip()[:6] in (b"data: ", b"event:", b"data:{"):
        return str(redact("".join(_pieces(sent))))
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


def _pieces(sent: bytes) -> Iterator[str]:
    for line in sent.splitlines():
        if not line.startswith(b"data:"):
            continue
        event = _decoded(line[5:])
        if isinstance(event, dict):
            for choice in event.get("choices") or ():
                yield from _texts(choice.get("delta") or choice)
            delta = event.get("delta")
            yield from [delta] if isinstance(delta, str) else _texts(delta) if isinstance(delta, dict) else ()


def _texts(delta: dict[str, Any]) -> Iterator[str]:
    for name in ("reasoning_content", "reasoning", "thinking", "content", "text", "partial_json"):
        if isinstance(delta.get(name), str):
            yield delta[name]
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        yield from (function[name] for name in ("name", "arguments") if isinstance(function.get(name), str))
