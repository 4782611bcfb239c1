"""A provider that speaks Anthropic's Messages API, OpenAI's Responses API and Gemini's, and lets an agent do a task.

The answers are those of the providers' published schemas. Each request gets the step that follows the tool results
that it holds: read a file, edit it, run a command, and then say what came of it.
"""

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.gateway.apis.native import provider

BEFORE, AFTER = "The colour is red.", "The colour is blue."
DONE = "The file says: "


class Server:
    """A server on a port of its own. `bodies` and `headers` are of the POST requests that came, by path."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {}
        self.headers: dict[str, list[dict[str, str]]] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.answer(self, b"")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                path = urlsplit(self.path).path
                server.bodies.setdefault(path, []).append(body)
                server.headers.setdefault(path, []).append({name.lower(): one for name, one in self.headers.items()})
                server.answer(self, body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer a request."""
        handler.send_error(404)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class NativeProvider(Server):
    """The provider. `file` is what the agent is to work on."""

    def __init__(self, file: Path) -> None:
        self.file = file
        super().__init__()

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        asked = json.loads(body)
        path = urlsplit(handler.path).path
        kind = "text/event-stream"
        if path.endswith(":streamGenerateContent"):
            events = self._content(asked)
        elif not path.endswith("/messages"):
            events = self._response(asked)
        elif asked.get("stream"):
            events = self._message(asked)
        else:
            kind, events = "application/json", [json.dumps(provider.message({"type": "text", "text": "ok"})).encode()]
        data = b"".join(events)
        handler.send_response(200)
        handler.send_header("content-type", kind)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _steps(self, offered: set[str]) -> list[tuple[str, dict[str, str]]]:
        """Return the calls of the task in the words of the agent that offers these tools; none if it is no task."""
        file, show = str(self.file), {"command": f"cat {self.file}", "description": "Show the file"}
        if "read_file" in offered:
            edit = {"file_path": file, "instruction": "Blue", "old_string": BEFORE, "new_string": AFTER}
            return [("read_file", {"file_path": file}), ("replace", edit), ("run_shell_command", show)]
        if "Read" in offered:
            edit = {"file_path": file, "old_string": BEFORE, "new_string": AFTER}
            return [("Read", {"file_path": file}), ("Edit", edit), ("Bash", show)]
        if "read" in offered:
            edit = {"filePath": file, "oldString": BEFORE, "newString": AFTER}
            return [("read", {"filePath": file}), ("edit", edit), ("bash", show)]
        return []

    def _content(self, asked: dict[str, Any]) -> list[bytes]:
        results = [
            part["functionResponse"]["response"]
            for content in asked["contents"]
            for part in content["parts"]
            if "functionResponse" in part
        ]
        offered = {one["name"] for tool in asked.get("tools", ()) for one in tool.get("functionDeclarations", ())}
        steps = self._steps(offered)
        if len(results) < len(steps):
            name, given = steps[len(results)]
            thought = {"text": "First this.", "thought": True}
            call = {"functionCall": {"name": name, "args": given}, "thoughtSignature": "c2lnbmF0dXJl"}
            return provider.gemini_events(provider.gemini_answer(thought, finish=None), provider.gemini_answer(call))
        said = DONE + results[-1]["output"] if results else "A file"
        return provider.gemini_events(provider.gemini_answer({"text": said}))

    def _message(self, asked: dict[str, Any]) -> list[bytes]:
        results = [
            block
            for message in asked["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
        steps = self._steps({tool["name"] for tool in asked.get("tools", ())})
        if not steps:  # a title, a summary
            return provider.message_events({"type": "text", "text": "A file"})
        if len(results) < len(steps):
            name, given = steps[len(results)]
            call = {"type": "tool_use", "id": f"toolu_{len(results)}", "name": name, "input": given}
            thought = {"type": "thinking", "thinking": "First this.", "signature": "c2lnbmF0dXJl"}
            return provider.message_events(thought, call, stop_reason="tool_use")
        return provider.message_events({"type": "text", "text": DONE + _text(results[-1]["content"])})

    def _response(self, asked: dict[str, Any]) -> list[bytes]:
        results = [item for item in asked["input"] if item["type"].endswith("_call_output")]
        steps = [f"cat {self.file}", f"sed -i s/red/blue/ {self.file}", f"cat {self.file}"]
        if len(results) < len(steps):
            call = provider.called("exec_command", {"cmd": steps[len(results)]})
            return provider.response_events(call | {"call_id": f"call_{len(results)}", "id": f"fc_{len(results)}"})
        return provider.response_events(provider.said(DONE + _text(results[-1]["output"])))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


class Recorder(Server):
    """Stands between an agent and the gateway, and keeps what the agent sent."""

    def __init__(self, gateway_url: str) -> None:
        self._gateway = urlsplit(gateway_url).netloc
        super().__init__()

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        connection = http.client.HTTPConnection(self._gateway, timeout=60)
        kept = {name: value for name, value in handler.headers.items() if name.lower() not in _HOP}
        connection.request(handler.command, handler.path, body or None, kept)
        reply = connection.getresponse()
        data = reply.read()
        handler.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in _HOP:
                handler.send_header(name, value)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
        connection.close()


_HOP = frozenset(("host", "connection", "content-length", "transfer-encoding", "accept-encoding"))
