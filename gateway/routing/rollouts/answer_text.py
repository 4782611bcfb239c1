"""The text of an answer, extracted from the bytes that its client was sent, to detect refusals and compare answers."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

_MOST_EVENTS: Final = 20_000
_decode: Final = msgspec.json.Decoder().decode


def text_of(sent: bytes, most_characters: int = 1 << 20) -> str | None:
    """Return the text of the first choice, complete or streamed, in any API's format; `None` if there is none.

    Arguments of tool calls are text as well: answers that call tools with different arguments are not alike. At most
    about `most_characters` are collected.
    """
    if sent.lstrip()[:6] in (b"data: ", b"event:", b"data:{"):
        return _streamed(sent, most_characters)
    try:
        whole = _decode(sent)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return "".join(_whole(whole))[:most_characters] if isinstance(whole, dict) else None


def _streamed(sent: bytes, most_characters: int) -> str | None:
    pieces: list[str] = []
    size, is_stream = 0, False
    for number, line in enumerate(sent.splitlines()):
        if number > _MOST_EVENTS or size >= most_characters:
            break
        if not line.startswith(b"data:"):
            continue
        try:
            event = _decode(line[5:])
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue  # the stream's end mark, or not an event
        if isinstance(event, dict):
            is_stream = True
            for piece in _delta(event):
                pieces.append(piece)
                size += len(piece)
    return "".join(pieces) if is_stream else None


def _delta(event: dict[str, Any]) -> Iterator[str]:
    choices = event.get("choices")
    if isinstance(choices, list):
        for choice in choices:
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                yield from _parts(choice["delta"] if isinstance(choice.get("delta"), dict) else choice)
    delta, kind = event.get("delta"), str(event.get("type", ""))
    if isinstance(delta, str) and kind.endswith(("output_text.delta", "function_call_arguments.delta")):
        yield delta
    elif isinstance(delta, dict) and not choices:
        yield from _parts(delta)
    begun = event.get("content_block") or event.get("item")
    if isinstance(begun, dict) and kind in ("content_block_start", "response.output_item.added"):
        yield from _named(begun)


def _whole(answer: dict[str, Any]) -> Iterator[str]:
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = choices[0].get("message")
        yield from _parts(message if isinstance(message, dict) else choices[0])
    yield from _parts(answer)
    output = answer.get("output")
    for item in output if isinstance(output, list) else ():
        if isinstance(item, dict):
            yield from _parts(item)


def _parts(holder: dict[str, Any]) -> Iterator[str]:
    for name in ("refusal", "content", "text"):
        found = holder.get(name)
        if isinstance(found, str):
            yield found
        for part in found if isinstance(found, list) else ():
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]
            elif isinstance(part, dict):
                yield from _called(part)
    calls = holder.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and isinstance(call.get("function"), dict):
            yield from _called(call["function"])
    yield from _called(holder)


def _called(call: dict[str, Any]) -> Iterator[str]:
    """Yield the names and arguments of tool calls, in any API's format, complete or in pieces."""
    yield from _named(call)
    for name in ("arguments", "partial_json"):
        if isinstance(call.get(name), str):
            yield call[name]
    if isinstance(call.get("input"), dict) and call["input"]:
        yield msgspec.json.encode(call["input"]).decode()


def _named(call: dict[str, Any]) -> Iterator[str]:
    if isinstance(call.get("name"), str):
        yield call["name"]
