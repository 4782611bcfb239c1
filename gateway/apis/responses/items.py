"""The input of a response as it is listed: every item in its full form, with an id."""

from typing import Any, Final
from uuid import UUID

import msgspec

from contracts.objects.responses import item_id

_PREFIXES: Final = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
_decoder: Final = msgspec.json.Decoder(dict[str, Any])


def listed_items(request_id: UUID, items: list[bytes]) -> list[dict[str, Any]]:
    """Return a request's items for keeping and listing; those that came without an id get one."""
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
