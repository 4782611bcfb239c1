"""Converts a chat's messages to a chat template's input. Unsupported fields are refused by name."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from backends.llm.host_inputs.engine_images import MAX_IMAGES, image_of
from backends.llm.parameters import refuse_all_but
from contracts.api.chat import ChatRequest, ContentPart, Message, ToolCall
from contracts.engine.wire import Image
from contracts.errors import InvalidRequest, UnsupportedParameter

_TEXT_PARTS: Final = ("text", "refusal")
_IMAGE_PART: Final = "image_url"
# Fields of earlier answers that applications send back, and that are not passed to the model.
_IDLE: Final = frozenset({"annotations", "id", "parsed"})
_THOUGHTS: Final = ("reasoning_content", "reasoning")  # vLLM's old and new name for an earlier answer's reasoning
_HONOURED: Final = _IDLE.union(Message.__struct_fields__, _THOUGHTS, ("cache_control",))
_AS_ALWAYS: Final = (b"null", b"[]")
_PLAIN: Final = frozenset({"role", "content"})

_raw_decoder: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def messages_of(
    request: ChatRequest, raw_messages: msgspec.Raw, images: list[Image] | None = None
) -> list[dict[str, object]]:
    """Return the messages for the template; `raw_messages` is their unparsed JSON.

    Images are appended to `images` in the template's order; `None`: the model does not support images. Raises
    InvalidRequest with the message and its field.
    """
    found: list[dict[str, object]] = []
    for place, (message, raw) in enumerate(zip(request.messages, _raw_decoder.decode(raw_messages), strict=True)):
        if raw.keys() <= _PLAIN and isinstance(message.content, str):
            found.append({"role": message.role, "content": message.content})
            continue
        where = f"messages[{place}]"
        asked = {name: value for name, value in raw.items() if bytes(value) not in _AS_ALWAYS}
        refuse_all_but(request.model, asked, _HONOURED, f"{where}.")
        found.append(_message(request.model, message, asked, where, images))
    return found


def _message(
    model: str, message: Message, raw: Mapping[str, msgspec.Raw], where: str, images: list[Image] | None
) -> dict[str, object]:
    given: dict[str, object] = {"role": message.role, "content": _content(model, message, where, images)}
    if message.name is not None:
        given["name"] = message.name
    if message.tool_call_id is not None:
        given["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        given["tool_calls"] = _tool_calls(model, message.tool_calls, where)
    for name in _THOUGHTS:
        if name in raw:
            given["reasoning_content"] = msgspec.json.decode(raw[name])  # as templates call it
            break
    return given


def _content(model: str, message: Message, where: str, images: list[Image] | None) -> str | list[dict[str, str]]:
    if message.content is None or isinstance(message.content, str):
        return message.content or message.refusal or ""
    _check_parts(model, message.content, where, takes_images=images is not None)
    if images is None or all(part.type != _IMAGE_PART for part in message.content):
        return "\n".join(part.text or part.refusal or "" for part in message.content)
    return [_part(model, part, f"{where}.content[{number}]", images) for number, part in enumerate(message.content)]


def _check_parts(model: str, parts: Sequence[ContentPart], where: str, *, takes_images: bool) -> None:
    """Raise UnsupportedParameter for a part that the model does not support."""
    for number, part in enumerate(parts):
        if part.type not in _TEXT_PARTS and not (takes_images and part.type == _IMAGE_PART):
            place = f"{where}.content[{number}]"
            takes = "text and images" if takes_images else "text only"
            raise UnsupportedParameter(
                f"{place} is of type {part.type[:40]!r}; {model!r} takes {takes}", param=f"{place}.type"
            )


def _part(model: str, part: ContentPart, where: str, images: list[Image]) -> dict[str, str]:
    """Return a part in the form that templates of multimodal models expect; append its image to `images`."""
    if part.type != _IMAGE_PART:
        return {"type": "text", "text": part.text or part.refusal or ""}
    if len(images) >= MAX_IMAGES:
        raise InvalidRequest(f"{where} is an image more than the {MAX_IMAGES} that are possible", param=where)
    images.append(image_of(model, part.image_url, where))
    return {"type": "image"}


def _tool_calls(model: str, calls: Sequence[ToolCall], where: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for number, call in enumerate(calls):
        if call.function is None:
            place = f"{where}.tool_calls[{number}]"
            raise UnsupportedParameter(
                f"{place} is of type {call.type[:40]!r}; {model!r} calls functions only", param=f"{place}.type"
            )
        function = {"name": call.function.name, "arguments": _arguments(call.function.arguments)}
        found.append({"id": call.id, "type": call.type, "function": function})
    return found


def _arguments(text: str) -> object:
    # Templates expect arguments as an object, which they render as JSON themselves.
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, dict) else text
