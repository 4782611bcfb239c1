"""What Anthropic's, OpenAI's and Google's servers answer, by the schemas that they publish, for `Upstream` to play."""

import json
from typing import Any

MESSAGE_ID, RESPONSE_ID = "msg_01XFDUDYJgAACzvnptvVoYEL", "resp_68af4030592c81938ec0a5fbab4a3e9f05438e46b5f69a3b"


def event(data: dict[str, Any]) -> bytes:
    """One event in the framing that both use, with blanks as Anthropic writes them."""
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def message(*content: dict[str, Any], stop_reason: str = "end_turn", **usage: Any) -> dict[str, Any]:
    """A whole message."""
    return {
        "id": MESSAGE_ID,
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 5,
            "cache_read_input_tokens": 100,
            "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 2},
            "output_tokens": 7,
            "service_tier": "standard",
            **usage,
        },
    }


def message_events(*content: dict[str, Any], stop_reason: str = "end_turn") -> list[bytes]:
    """The events of a message's stream; each text comes word by word."""
    begun = message()
    begun |= {"stop_reason": None, "usage": begun["usage"] | {"output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(content):
        start, pieces = _pieces(block)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces]
        events.append({"type": "content_block_stop", "index": index})
    events.insert(2, {"type": "ping"})
    end = {"stop_reason": stop_reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 7}})
    events.append({"type": "message_stop"})
    return [event(one) for one in events]


def _pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        words = block["text"].split(" ")
        texts = [word if number == 0 else f" {word}" for number, word in enumerate(words)]
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": text} for text in texts]
    if block["type"] == "tool_use":
        text = json.dumps(block["input"])
        halves = [text[: len(text) // 2], text[len(text) // 2 :]]
        return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": half} for half in halves]
    thought = [{"type": "thinking_delta", "thinking": block["thinking"]}]
    signed = [{"type": "signature_delta", "signature": block["signature"]}]
    return {"type": "thinking", "thinking": "", "signature": ""}, thought + signed


def response(*output: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    """A whole response."""
    return {
        "id": RESPONSE_ID,
        "object": "response",
        "created_at": 1756315696,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": "gpt-5-2026-08-07",
        "output": list(output),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": "medium", "summary": None},
        "service_tier": "default",
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": 30,
            "input_tokens_details": {"cached_tokens": 20},
            "output_tokens": 9,
            "output_tokens_details": {"reasoning_tokens": 4},
            "total_tokens": 39,
        },
        "user": None,
        "metadata": {},
        **more,
    }


def said(text: str) -> dict[str, Any]:
    """An item of output that is text."""
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {"id": "msg_68af4033b1", "type": "message", "status": "completed", "content": [part], "role": "assistant"}


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """An item of output that calls a function."""
    return {
        "id": "fc_68af4033b2",
        "type": "function_call",
        "status": "completed",
        "arguments": json.dumps(arguments),
        "call_id": "call_1",
        "name": name,
    }


def response_events(*output: dict[str, Any]) -> list[bytes]:
    """The events of a response's stream; each text comes word by word."""
    begun = response(status="in_progress", usage=None)
    events: list[dict[str, Any]] = [{"type": kind, "response": begun} for kind in _BEGUN]
    for index, item in enumerate(output):
        events += _item_events(index, item)
    events.append({"type": "response.completed", "response": response(*output)})
    return [event(one | {"sequence_number": number}) for number, one in enumerate(events)]


_BEGUN = ("response.created", "response.in_progress")


def _item_events(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    at = {"item_id": item["id"], "output_index": index}
    if item["type"] == "function_call":
        empty = item | {"status": "in_progress", "arguments": ""}
        text = item["arguments"]
        halves = [text[: len(text) // 2], text[len(text) // 2 :]]
        kind = "response.function_call_arguments"
        middle = [{"type": f"{kind}.delta", **at, "delta": half} for half in halves]
        middle.append({"type": f"{kind}.done", **at, "arguments": text})
    else:
        empty = item | {"status": "in_progress", "content": []}
        [part] = item["content"]
        at |= {"content_index": 0}
        words = part["text"].split(" ")
        texts = [word if number == 0 else f" {word}" for number, word in enumerate(words)]
        middle = [{"type": "response.content_part.added", **at, "part": part | {"text": ""}}]
        middle += [{"type": "response.output_text.delta", **at, "delta": text, "logprobs": []} for text in texts]
        middle.append({"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []})
        middle.append({"type": "response.content_part.done", **at, "part": part})
    return [
        {"type": "response.output_item.added", "output_index": index, "item": empty},
        *middle,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


GEMINI_USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "candidatesTokenCount": 7,
    "thoughtsTokenCount": 3,
    "totalTokenCount": 110,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 70}, {"modality": "IMAGE", "tokenCount": 30}],
}


def gemini_answer(*parts: dict[str, Any], finish: str | None = "STOP", **more: Any) -> dict[str, Any]:
    """A whole answer of the Gemini API, or one event of a stream."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "usageMetadata": GEMINI_USAGE, "modelVersion": "gemini-3-pro-001", **more}


def gemini_events(*answers: dict[str, Any]) -> list[bytes]:
    """The framing that Google uses: lines end with CR and LF."""
    return [b"data: " + json.dumps(one).encode() + b"\r\n\r\n" for one in answers]
