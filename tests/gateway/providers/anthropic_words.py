"""What Anthropic's API says, for a model server that plays bytes (platform.claude.com/docs, Messages, October 2026)."""

import json
from typing import Any

from tests.gateway.model_server import Upstream

USAGE: dict[str, Any] = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 5,
    "cache_read_input_tokens": 7,
    "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3},
    "output_tokens": 15,
}


def event(kind: str, **data: Any) -> bytes:
    """One server-sent event."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def started(**usage: Any) -> bytes:
    """The event that opens a message; its output count is a beginning."""
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-served-1",
        "content": [],
        "stop_reason": None,
        "usage": {**USAGE, "output_tokens": 1, **usage},
    }
    return event("message_start", message=message)


def block(index: int, opening: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    """One content block, from its start to its stop."""
    return [
        event("content_block_start", index=index, content_block=opening),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


def thoughts(index: int, text: str) -> list[bytes]:
    return block(
        index,
        {"type": "thinking", "thinking": ""},
        {"type": "thinking_delta", "thinking": text},
        {"type": "signature_delta", "signature": "signed=="},
    )


def text(index: int, *pieces: str) -> list[bytes]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def tool(index: int, name: str, *pieces: str) -> list[bytes]:
    return block(
        index,
        {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}},
        *({"type": "input_json_delta", "partial_json": piece} for piece in pieces),
    )


def ended(reason: str = "end_turn", output_tokens: int = 15, **usage: Any) -> list[bytes]:
    """The events that end a message."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        event("message_delta", delta=delta, usage={"output_tokens": output_tokens, **usage}),
        event("message_stop"),
    ]


def message(*content: dict[str, Any], reason: str = "end_turn", **usage: Any) -> bytes:
    """A whole message."""
    found: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-served-1",
        "content": list(content or ({"type": "text", "text": "Hello there"},)),
        "stop_reason": reason,
    }
    return Upstream.whole({**found, "usage": {**USAGE, **usage}})


def error(status: int, kind: str, message: str, headers: str = "") -> bytes:
    """An error."""
    return Upstream.whole({"type": "error", "error": {"type": kind, "message": message}}, status, headers)
