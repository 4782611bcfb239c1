"""An OpenAI-compatible server that does what it is asked: it calls the tools offered to it, and fills in schemas.

Numbers and quoted words of the newest message are the arguments. It knows nothing else.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = "Here is an answer of some words.".split(" ")
JOKE = {"setup": "Why did the cat sit on the router?", "punchline": "It was warm."}
USAGE = {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28}
SHARED = {"id": "x", "created": 1, "model": "obliging"}


class ObligingModel:
    """The server, on a port of its own."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                kind, data = _embeddings(asked) if self.path.endswith("/embeddings") else _chat(asked)
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _embeddings(asked: dict[str, Any]) -> tuple[str, bytes]:
    texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
    data = [
        {"object": "embedding", "index": place, "embedding": [len(text) / 100, 0.5, -0.25]}
        for place, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
    return "application/json", json.dumps({"object": "list", "data": data, "model": "x", "usage": usage}).encode()


def _chat(asked: dict[str, Any]) -> tuple[str, bytes]:
    calls, text = _calls(asked), _text(asked)
    finish = "tool_calls" if calls else "stop"
    if not asked.get("stream"):
        message = {"role": "assistant", "content": None if calls else text, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        whole = {**SHARED, "object": "chat.completion", "choices": [choice], "usage": USAGE}
        return "application/json", json.dumps(whole).encode()
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if calls:
        deltas += [{"tool_calls": [{"index": place, **call}]} for place, call in enumerate(calls)]
    else:
        deltas += [{"content": piece} for piece in re.findall(r"\s*\S+", text)]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    chunks.append({"choices": [], "usage": USAGE})
    events = [json.dumps({**SHARED, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return "text/event-stream", "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


def _calls(asked: dict[str, Any]) -> list[dict[str, Any]]:
    tools, choice = asked.get("tools") or [], asked.get("tool_choice", "auto")
    if not tools or choice == "none" or (choice == "auto" and asked["messages"][-1]["role"] == "tool"):
        return []
    named = choice["function"]["name"] if isinstance(choice, dict) else tools[0]["function"]["name"]
    function = next(tool["function"] for tool in tools if tool["function"]["name"] == named)
    arguments = json.dumps(_instance(function.get("parameters", {}), _prompt(asked)))
    return [{"id": "call_1", "type": "function", "function": {"name": named, "arguments": arguments}}]


def _text(asked: dict[str, Any]) -> str:
    wanted = asked.get("response_format") or {"type": "text"}
    if wanted["type"] == "json_schema":
        return json.dumps(_instance(wanted["json_schema"]["schema"], _prompt(asked)))
    return json.dumps(JOKE) if wanted["type"] == "json_object" else " ".join(WORDS)


def _prompt(asked: dict[str, Any]) -> str:
    content = next(message["content"] for message in reversed(asked["messages"]) if message["role"] == "user")
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def _instance(schema: dict[str, Any], prompt: str, name: str = "") -> Any:
    """Return a value that a schema allows, with what the prompt has of its kind."""
    options = schema.get("anyOf")
    if options:
        return _instance(options[0], prompt, name)
    kind = schema.get("type", "object")
    if kind == "object":
        return {key: _instance(value, prompt, key) for key, value in schema.get("properties", {}).items()}
    numbers, quoted = re.findall(r"\d+", prompt), re.findall(r"'([^']+)'", prompt)
    if kind in ("integer", "number"):
        return int(numbers[-1]) if numbers else 1
    if kind == "array":
        return []
    if kind == "boolean":
        return True
    return schema.get("enum", [quoted[0] if quoted else JOKE.get(name, "a word")])[0]
