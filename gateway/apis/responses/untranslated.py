"""Reads a request of the Responses API that is sent to its target untranslated: its model, limits, references
and user.
"""

from typing import Any, Final

import msgspec

from contracts.access.identity import MAX_USER_LENGTH
from contracts.api.chat import EFFORTS, PositiveInt, TranslatedChat
from contracts.api.responses import MessageItem, ResponseRequest
from contracts.errors import InvalidRequest
from gateway.apis.reading import read_body
from gateway.apis.responses.asked import AskedItem, AskedResponse

_NO_TEXT: Final = MessageItem(role="user", content="")  # of an item that only the target reads
_encode: Final = msgspec.json.Encoder().encode


class _Fields(msgspec.Struct, frozen=True):
    model: str
    input: str | list[msgspec.Raw] | None = None
    stream: bool | None = None
    max_output_tokens: PositiveInt | None = None
    temperature: Any = None
    tools: list[msgspec.Raw] | None = None
    reasoning: Any = None
    store: bool | None = None
    background: bool | None = None
    conversation: Any = None
    previous_response_id: str | None = None
    user: Any = None
    safety_identifier: Any = None
    service_tier: Any = None


_fields: Final = msgspec.json.Decoder(_Fields)


def read_untranslated_response(content_type: str, body: bytes) -> TranslatedChat:
    """Read a body. Raises UnsupportedMediaType, MalformedBody, or InvalidRequest if a field that the gateway uses is
    invalid.
    """
    read = read_body(_fields, content_type, body, {})
    _refuse_kept(read)
    user = read.user if isinstance(read.user, str) else read.safety_identifier
    effort = read.reasoning.get("effort") if isinstance(read.reasoning, dict) else None
    given = read.input
    items = [_encode({"role": "user", "content": given})] if isinstance(given, str) else map(bytes, given or ())
    asked = AskedResponse(
        request=ResponseRequest(
            model=read.model,
            stream=read.stream,
            store=read.store,
            previous_response_id=read.previous_response_id,
            max_output_tokens=read.max_output_tokens,
        ),
        items=[AskedItem(_NO_TEXT, item) for item in items],
        offered=[],
        shown_tools=read.tools or [],
        tools=[],
    )
    return TranslatedChat(
        model=read.model,
        messages=[],
        stream=read.stream,
        max_tokens=read.max_output_tokens,
        temperature=read.temperature if isinstance(read.temperature, float | int) else None,
        tools=read.tools,
        user=user[:MAX_USER_LENGTH] if isinstance(user, str) else None,
        reasoning_effort=effort if effort in EFFORTS else None,
        service_tier=read.service_tier if isinstance(read.service_tier, str) else None,
        chat_body=body,
        origin=asked,
    )


def _refuse_kept(read: _Fields) -> None:
    """Refuse what lives on at the provider, under an account that all callers share."""
    if read.background:
        raise InvalidRequest(
            "background is true: responses run while the client waits; stream them, or use a batch", param="background"
        )
    if read.conversation is not None:
        raise InvalidRequest("conversation is not supported; use previous_response_id", param="conversation")
