"""What Gemini's API says, for a model server that plays bytes (ai.google.dev/api/generate-content, October 2026)."""

import json
from typing import Any

from tests.gateway.model_server import Upstream

USAGE: dict[str, Any] = {
    "promptTokenCount": 8,
    "cachedContentTokenCount": 3,
    "candidatesTokenCount": 5,
    "thoughtsTokenCount": 4,
    "totalTokenCount": 17,
}
THOUGHT: dict[str, Any] = {"text": "pondering", "thought": True}
CALL: dict[str, Any] = {"functionCall": {"name": "get_weather", "args": {"city": "Rome"}}}


def response(*parts: dict[str, Any], finish: str | None = None, **usage: Any) -> dict[str, Any]:
    """A whole answer, or one event of a stream."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    found: dict[str, Any] = {"candidates": [candidate], "modelVersion": "gemini-served-1", "responseId": "r1"}
    return {**found, "usageMetadata": usage} if usage else found


def event(*parts: dict[str, Any], finish: str | None = None, **usage: Any) -> bytes:
    """One server-sent event."""
    return f"data: {json.dumps(response(*parts, finish=finish, **usage))}\r\n\r\n".encode()


def whole(*parts: dict[str, Any], finish: str = "STOP", **usage: Any) -> bytes:
    """A whole answer."""
    return Upstream.whole(response(*parts, finish=finish, **(usage or USAGE)))


def error(status: int, name: str, message: str, headers: str = "") -> bytes:
    """An error."""
    return Upstream.whole({"error": {"code": status, "message": message, "status": name}}, status, headers)
