"""A parsed and validated request of the Responses API, with the stored items that it refers to."""

from typing import Any, Final
from uuid import UUID

import msgspec

from contracts.access.owner import Owner
from contracts.api.responses import InputItem, OfferedTool, ResponseRequest
from contracts.objects.responses import item_id

NOBODY: Final = Owner("")
_PREFIXES: Final = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
_decoder: Final = msgspec.json.Decoder(dict[str, Any])


class AskedItem(msgspec.Struct, frozen=True):
    """One item of the input: parsed, and as the original JSON."""

    item: InputItem
    json: bytes


class AskedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A request with its items. `offered` are all tools; `tools` are those that `tool_choice` allows the model to call.

    `shown_tools` are the tools as the response repeats them. `tool_choice` is in a chat's format. `history` has the
    inputs and outputs of the earlier responses that this one continues, oldest first.
    """

    request: ResponseRequest
    items: list[AskedItem]
    offered: list[OfferedTool]
    shown_tools: list[msgspec.Raw]
    tools: list[OfferedTool]
    tool_choice: str | dict[str, Any] | None = None
    owner: Owner = NOBODY
    history: list[InputItem] = []


def listed_items(request_id: UUID, items: list[bytes]) -> list[dict[str, Any]]:
    """Return a request's items in their full form, for storing and listing; items without an id get one."""
    return [_listed(request_id, place, _decoder.decode(json)) for place, json in enumerate(items)]


def _listed(request_id: UUID, place: int, item: dict[str, Any]) -> dict[str, Any]:
    kind = item.get("type") or "message"
    identifier = item.get("id") or item_id(_PREFIXES.get(kind, "item"), request_id, place, is_output=False)
    full = {**item, "id": identifier, "type": kind}
    if kind == "message" and isinstance(item["content"], str):
        text_type = "output_text" if item["role"] == "assistant" else "input_text"
        annotations: dict[str, Any] = {"annotations": []} if text_type == "output_text" else {}
        full["content"] = [{"type": text_type, "text": item["content"], **annotations}]
    if kind == "reasoning":
        full.setdefault("summary", [])
    else:
        full["status"] = item.get("status") or "completed"
    return full
