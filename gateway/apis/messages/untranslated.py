"""Read a request of the Messages API that is not translated: its model, its limits, and who asks."""

from typing import Any, Final

import msgspec

from contracts.access.identity import MAX_USER_LENGTH
from contracts.api.chat import PositiveInt, ReasoningEffort, TranslatedChat
from contracts.api.messages import AdaptiveThinking, MessagesRequest
from gateway.apis.messages.translation import HIGH_BUDGET, MEDIUM_BUDGET
from gateway.apis.reading import read_body

_EFFORTS: Final = frozenset(("low", "medium", "high", "xhigh", "max"))
_SHOWN: Final = AdaptiveThinking()


class _Fields(msgspec.Struct, frozen=True):
    model: str
    messages: msgspec.Raw
    max_tokens: PositiveInt | None = None
    stream: bool | None = None
    temperature: Any = None
    tools: list[msgspec.Raw] | None = None
    thinking: Any = None
    output_config: Any = None
    metadata: Any = None
    service_tier: Any = None
    speed: Any = None


_fields: Final = msgspec.json.Decoder(_Fields)
# A body of 100 kB is read through once: what is decided by is then read from the few bytes that it takes.
_objects: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode
_UNREAD: Final = {"messages": msgspec.Raw(b"[]")}


def read_untranslated_messages(content_type: str, body: bytes) -> TranslatedChat:
    """Read a body. Raise UnsupportedMediaType, MalformedBody, or InvalidRequest on what the gateway decides by."""
    fields = read_body(_objects, content_type, body, {})
    small = {name: fields[name] for name in _Fields.__struct_fields__ if name in fields}
    if "messages" in small:
        small |= _UNREAD
    try:
        read = _fields.decode(_encode(small))
    except (msgspec.MsgspecError, UnicodeError):
        read = read_body(_fields, content_type, body, {})  # which says what is wrong, and where
    user = read.metadata.get("user_id") if isinstance(read.metadata, dict) else None
    limit = read.max_tokens
    return TranslatedChat(
        model=read.model,
        messages=[],
        stream=read.stream,
        max_tokens=limit,
        temperature=read.temperature if isinstance(read.temperature, float | int) else None,
        tools=read.tools,
        user=user[:MAX_USER_LENGTH] if isinstance(user, str) else None,
        reasoning_effort=_effort_of(read),
        service_tier=read.service_tier if isinstance(read.service_tier, str) else None,
        speed=read.speed if isinstance(read.speed, str) else None,
        chat_body=body,
        chat_fields=fields,
        origin=MessagesRequest(model=read.model, messages=[], max_tokens=limit or 1, thinking=_SHOWN),
    )


def _effort_of(read: _Fields) -> ReasoningEffort | None:
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
