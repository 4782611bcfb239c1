"""An MCP program without a library, which does what its tools are named for. Run as `python stdio_program.py`.

It counts its calls, so that a test sees whether two callers share a process, and speaks revision 2025-06-18.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

TOOLS = "count variable hang crash flood overlong noise child progress reports asks cancelled".split()
cancelled: list[Any] = []


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(id: Any, said: str) -> None:
    say({"id": id, "result": {"content": [{"type": "text", "text": said}]}})


def call(id: Any, name: str, params: dict[str, Any], calls: int) -> None:
    arguments = params.get("arguments", {})
    if name == "hang":
        return
    if name == "crash":
        sys.exit(3)
    if name == "flood":
        while True:
            say({"method": "notifications/message", "params": {"level": "info", "data": "x" * 100}})
    if name == "overlong":
        say({"id": id, "result": {"content": [{"type": "text", "text": "x" * (18 << 20)}]}})
    if name == "noise":
        print("Starting up ...\n{not json\n[]", flush=True)
        print(f"the token is {os.environ.get('TOKEN', '')}", file=sys.stderr, flush=True)
    if name == "child":
        text(id, str(subprocess.Popen(["sleep", "600"]).pid))
    elif name == "progress":
        token = params["_meta"]["progressToken"]
        say({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "total": 2}})
        time.sleep(0.2)
        text(id, "done")
    elif name == "reports":
        token = params["_meta"]["progressToken"]
        for number in range(5000):
            say({"method": "notifications/progress", "params": {"progressToken": token, "progress": number}})
            if number % 20 == 0:  # slowly enough to be read
                time.sleep(0.001)
        text(id, "done")
    elif name == "asks":
        say({"id": "mine", "method": "roots/list"})
        text(id, json.dumps(json.loads(sys.stdin.readline())["error"]))
    elif name == "variable":
        text(id, os.environ.get(arguments["name"], "not set"))
    elif name == "cancelled":
        text(id, str(len(cancelled)))
    else:
        text(id, str(calls))


def main() -> None:
    calls = 0
    is_initialized = False
    for line in sys.stdin:
        message = json.loads(line)
        method, id, params = message.get("method"), message.get("id"), message.get("params", {})
        if method == "initialize":
            is_initialized = True
            info = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            say({"id": id, "result": {**info, "serverInfo": {"name": "raw", "version": "1"}}})
        elif method == "notifications/cancelled":
            cancelled.append(params["requestId"])
        elif id is None:
            continue
        elif not is_initialized:
            say({"id": id, "error": {"code": -32602, "message": "not initialized"}})
        elif method == "tools/list":
            say({"id": id, "result": {"tools": [{"name": one, "inputSchema": {"type": "object"}} for one in TOOLS]}})
        else:
            calls += 1
            call(id, params["name"], params, calls)


main()
