"""Reads a request of the Messages API that is sent to its target untranslated: its model, its limits, and its user."""

from typing import Final

import msgspec

from contracts.access.identity import MAX_USER_LENGTH
from contracts.api.chat import ReasoningEffort, TranslatedChat
from contracts.api.messages import AdaptiveThinking, MessagesFields, MessagesRequest
from gateway.apis.messages.translation import HIGH_BUDGET, MEDIUM_BUDGET
from gateway.apis.reading import read_body

_EFFORTS: Final = frozenset(("low", "medium", "high", "xhigh", "max"))
_SHOWN: Final = AdaptiveThinking()


_fields: Final = msgspec.json.Decoder(MessagesFields)
# A body of 100 kB is read through once: what is decided by is then read from the few bytes that it takes.
_objects: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode
_tools: Final = msgspec.json.Decoder(list[msgspec.Raw] | None)
_UNREAD: Final = msgspec.Raw(b"[]")
_READ: Final = MessagesFields.__struct_fields__


def read_untranslated_messages(content_type: str, body: bytes) -> TranslatedChat:
    """Read a body. Raises UnsupportedMediaType, MalformedBody, or InvalidRequest if a field that the gateway uses is
    invalid.
    """
    fields = read_body(_objects, content_type, body, {})
    small: dict[str, msgspec.Raw] = {}
    for name in _READ:
        raw = fields.get(name)
        if raw is not None:
            small[name] = raw
    if "messages" in small:
        small["messages"] = _UNREAD
    given = small.pop("tools", None)
    try:
        read = _fields.decode(_encode(small))
        tools = None if given is None else _tools.decode(given)
    except (msgspec.MsgspecError, UnicodeError):
        read = read_body(_fields, content_type, body, {})  # which says what is wrong, and where
        tools = read.tools
    user = read.metadata.get("user_id") if isinstance(read.metadata, dict) else None
    limit = read.max_tokens
    return TranslatedChat(
        model=read.model,
        messages=[],
        stream=read.stream,
        max_tokens=limit,
        temperature=read.temperature if isinstance(read.temperature, float | int) else None,
        tools=tools,
        user=user[:MAX_USER_LENGTH] if isinstance(user, str) else None,
        reasoning_effort=_effort_of(read),
        service_tier=read.service_tier if isinstance(read.service_tier, str) else None,
        speed=read.speed if isinstance(read.speed, str) else None,
        chat_body=body,
        chat_fields=fields,
        origin=MessagesRequest(model=read.model, messages=[], max_tokens=limit or 1, thinking=_SHOWN),
    )


def _effort_of(read: MessagesFields) -> ReasoningEffort | None:
    thinking, output = read.thinking, read.output_config
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        return "none"
    effort = output.get("effort") if isinstance(output, dict) else None
    if effort in _EFFORTS:
        return effort  # type: ignore[no-any-return]  # it is one of them
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    if not isinstance(budget, int):
        return None
    return "low" if budget < MEDIUM_BUDGET else "medium" if budget < HIGH_BUDGET else "high"
