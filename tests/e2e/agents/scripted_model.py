"""A model server that calls the one tool it knows of those it is offered, and then repeats what the tool returned.

Without tools it says what stands between `<answer>` and `</answer>` in the prompt, else a greeting.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMAND = "echo $((40 + 2))"
CALLS: dict[str, dict[str, object]] = {
    "Bash": {"command": COMMAND, "description": "Add two numbers"},
    "exec_command": {"cmd": COMMAND},
    "add": {"a": 40, "b": 2},
}
GREETING = "Good day."
VECTOR = [0.5, -1.0]  # of every text
WANTED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class ScriptedModel:
    """An OpenAI-compatible server on a port of its own. `bodies` are the chats it was asked for."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                model.bodies.append(body)
                kind, data = _answer(body)
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


def _answer(body: dict[str, Any]) -> tuple[str, bytes]:
    if "messages" not in body:
        vectors = [{"object": "embedding", "index": place, "embedding": VECTOR} for place in range(len(body["input"]))]
        usage = {"prompt_tokens": 4, "total_tokens": 4}
        whole = {"object": "list", "data": vectors, "model": "scripted", "usage": usage}
        return "application/json", json.dumps(whole).encode()
    message, finish = _message(body)
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    shared: dict[str, Any] = {"id": "x", "created": 1, "model": "scripted"}
    if not body.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        whole = {**shared, "object": "chat.completion", "choices": [choice], "usage": usage}
        return "application/json", json.dumps(whole).encode()
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", **message}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {"choices": [], "usage": usage},
    ]
    events = [json.dumps({**shared, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return "text/event-stream", "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


def _message(body: dict[str, Any]) -> tuple[dict[str, Any], str]:
    results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    if results:
        return {"content": f"The tool says: {results[-1]}"}, "stop"
    offered = {tool["function"]["name"] for tool in body.get("tools", ())}
    name = next((name for name in CALLS if name in offered), None)
    if name is None:
        wanted = WANTED.search(str(body["messages"][-1]["content"]))
        return {"content": wanted.group(1) if wanted else GREETING}, "stop"
    function = {"name": name, "arguments": json.dumps(CALLS[name])}
    return {"content": None, "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}, (
        "tool_calls"
    )
