"""A response as it was asked for, read and checked, with what looking things up has added."""

from typing import Any, Final

import msgspec

from contracts.access.owner import Owner
from contracts.api.responses import InputItem, OfferedTool, ResponseRequest

NOBODY: Final = Owner("")


class AskedItem(msgspec.Struct, frozen=True):
    """One item of the input: read, and as the JSON it came as."""

    item: InputItem
    json: bytes


class AskedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A request with its items. Of the tools `offered`, `tools` are those that `tool_choice` lets the model call.

    `shown_tools` are the tools as the response repeats them. `tool_choice` is as a chat has it. `history` is what the
    responses that this one continues were given and said, the oldest first.
    """

    request: ResponseRequest
    items: list[AskedItem]
    offered: list[OfferedTool]
    shown_tools: list[msgspec.Raw]
    tools: list[OfferedTool]
    tool_choice: str | dict[str, Any] | None = None
    owner: Owner = NOBODY
    history: list[InputItem] = []
