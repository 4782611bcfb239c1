"""The MCP server that the official conformance suite wants to find behind what it tests: its tools, in raw messages."""

import asyncio
import base64
from typing import Any

from tests.gateway.mcp.raw_server import Call, RawMcp

PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100"
        "c9fe92ef0000000049454e44ae426082"
    )
).decode()
SOUND = base64.b64encode(
    b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0@\x1f\0\0@\x1f\0\0\x01\0\x08\0data\0\0\0\0"
).decode()
IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def resource(uri: str, kind: str, words: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": words}}


PLAIN: dict[str, dict[str, Any]] = {
    "test_simple_text": {"content": [text("This is a simple text response for testing.")]},
    "test_image_content": {"content": [IMAGE]},
    "test_audio_content": {"content": [{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}]},
    "test_embedded_resource": {
        "content": [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]
    },
    "test_multiple_content_types": {
        "content": [
            text("Multiple content types test:"),
            IMAGE,
            resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ]
    },
    "test_error_handling": {
        "content": [text("This tool intentionally returns an error for testing")],
        "isError": True,
    },
}


def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"method": method, "params": params}


ELICIT = ask("elicitation/create", {"mode": "form", "message": "What is your name?", "requestedSchema": FORM})
SAMPLE = ask(
    "sampling/createMessage",
    {"messages": [{"role": "user", "content": text("What is the capital of France?")}], "maxTokens": 100},
)
ROOTS = ask("roots/list", {})
ASKING: dict[str, dict[str, Any]] = {
    "test_input_required_result_elicitation": {"user_name": ELICIT},
    "test_input_required_result_sampling": {"capital_question": SAMPLE},
    "test_input_required_result_list_roots": {"client_roots": ROOTS},
    "test_input_required_result_request_state": {"confirm": ELICIT},
    "test_input_required_result_multiple_inputs": {"user_name": ELICIT, "greeting": SAMPLE, "client_roots": ROOTS},
    "test_input_required_result_multi_round": {"step1": ELICIT},
    "test_input_required_result_tampered_state": {"confirm": ELICIT},
    "test_input_required_result_capabilities": {"user_name": ELICIT, "capital_question": SAMPLE},
}
NEEDS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
NOTIFYING = ("test_tool_with_logging", "test_tool_with_progress")
TOOLS = [*PLAIN, *ASKING, *NOTIFYING, "test_missing_capability", "test_streaming_elicitation", "test_logging_tool"]


async def answer(call: Call) -> None:
    """Answer a call as the suite describes its tools."""
    params = call.message["params"]
    name, meta = params["name"], params.get("_meta", {})
    if name in PLAIN:
        call.result({"resultType": "complete", **PLAIN[name]})
    elif name in ASKING:
        _ask(call, ASKING[name], params, meta)
    elif name in NOTIFYING:
        await _notify(call, name, meta)
    elif name == "test_missing_capability":
        if "sampling" in meta.get("io.modelcontextprotocol/clientCapabilities", {}):
            call.result({"resultType": "complete", "content": [text("it is there")]})
        else:
            call.error(-32021, "sampling is needed", 400, {"requiredCapabilities": {"sampling": {}}})
    else:
        call.result({"resultType": "complete", "content": [text("done")]})


def _ask(call: Call, asked: dict[str, Any], params: dict[str, Any], meta: dict[str, Any]) -> None:
    name, given = params["name"], params.get("inputResponses") or {}
    state = params.get("requestState")
    declared = meta.get("io.modelcontextprotocol/clientCapabilities", {})
    if "capabilities" in name:
        asked = {key: one for key, one in asked.items() if NEEDS[one["method"]] in declared}
    if state not in (None, "sealed:1", "sealed:2"):
        call.error(-32602, "requestState is not what this server has given")
        return
    if "multi_round" in name and "step1" in given:
        asked = {"step2": ELICIT}
        call.result({"resultType": "input_required", "inputRequests": asked, "requestState": "sealed:2"})
        return
    if "multi_round" in name and "step2" in given:
        asked = {"step2": ELICIT}
    wrong = [key for key in asked if key in given and not isinstance(given[key], dict)]
    if "elicitation" in name and isinstance(given.get("user_name"), dict):
        content = given["user_name"].get("content")
        if not isinstance(content, dict) or not isinstance(content.get("name"), str):
            wrong.append("user_name")
    if all(key in given for key in asked) and not wrong:
        words = "state-ok" if state is not None else "hello"
        call.result({"resultType": "complete", "content": [text(f"{words} {given}")]})
        return
    stateful = {"requestState": "sealed:1"} if "elicitation" not in name else {}
    call.result({"resultType": "input_required", "inputRequests": asked, **stateful})


async def _notify(call: Call, name: str, meta: dict[str, Any]) -> None:
    call.stream()
    for step in (0, 50, 100):
        if name == "test_tool_with_progress" and "progressToken" in meta:
            params = {"progressToken": meta["progressToken"], "progress": step, "total": 100}
            call.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        elif name == "test_tool_with_logging":
            params = {"level": "info", "data": f"step {step}"}
            call.event({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        await call.writer.drain()
        await asyncio.sleep(0.05)
    call.event(
        {"jsonrpc": "2.0", "id": call.message["id"], "result": {"resultType": "complete", "content": [text("done")]}}
    )
    call.end()


def conformance_server() -> RawMcp:
    """Create the server."""
    schema = {"type": "object", "properties": {}}
    tools = [{"name": name, "description": f"Tool {name}.", "inputSchema": schema} for name in TOOLS]
    return RawMcp(answer, tools)
