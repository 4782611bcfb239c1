"""What agents' requests cost beside a plain chat: native Messages, a large prompt with 40 tools, calls of MCP tools."""

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bench.gateway_audit import Audit
from bench.gateway_plan import Plan
from bench.gateway_rows import GATEWAY, quantile_of, rate_of
from bench.load.gateway_process import MeasuredGateway, configuration
from bench.load.peers import MODEL, Peer, start_nginx
from bench.load.processes import free_ports
from bench.load.rig import Rig
from bench.load.sample import Sample
from bench.report import Report

_NATIVE_MODEL: Final = "native-model"
_TOOL: Final = "repo__search"
_NUMBER: Final = "0" * 19  # the load client puts each request's own in its place
_PLAIN_BYTES: Final = 1024
_AGENT_BYTES: Final = 100_000
_TOOLS: Final = 40
_CLOSED: Final = 64
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
_MCP_HEADERS: Final = {
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": _TOOL,
    "accept": "application/json, text/event-stream",
}


def measure_agents(report: Report, plan: Plan, rig: Rig, home: Path, audit: Audit) -> None:
    """Ask one gateway for chats, for messages that pass through, for an agent's large prompt, and for tools."""
    with ExitStack() as stack:
        process, nginx = start_nginx(rig.cores.measured, home, rig.mock_port)
        stack.callback(process.stop)
        gateway = MeasuredGateway(f"{GATEWAY}_agents", rig.cores.measured, home, _configuration(rig), free_ports())
        stack.callback(gateway.stop)
        audit.open(gateway)
        _measure_native(report, plan, rig, gateway.peer, home)
        _measure_agent_prompt(report, plan, rig, [rig.direct, nginx, gateway.peer], home)
        _measure_tool_calls(report, plan, rig, gateway.peer, home)
        audit.close(gateway)


def _measure_native(report: Report, plan: Plan, rig: Rig, gateway: Peer, home: Path) -> None:
    """Messages of a kilobyte that pass through, beside chats of a kilobyte."""
    body = _written(home / "native.json", _message(_PLAIN_BYTES, 0))
    native = _other(gateway, "native_messages", path="/v1/messages", body=body)
    series = rig.alternate([gateway, native], plan.load("closed", _CLOSED, prompt_bytes=_PLAIN_BYTES), plan.rounds)
    n = len(series.of(native.name))
    ratio = series.ratio(native.name, gateway.name, rate_of)
    report.add("native_messages", series.median(native.name, rate_of), "requests/s", n=n)
    report.add("native_messages_to_plain", ratio, "x plain chats/s", must=0.80, stretch=0.95, n=n)


def _measure_agent_prompt(report: Report, plan: Plan, rig: Rig, peers: list[Peer], home: Path) -> None:
    """What is added to an agent's large prompt, at a fixed rate."""
    body = _written(home / "agent.json", _message(_AGENT_BYTES, _TOOLS))
    session = {"x-claude-code-session-id": "5f1c1f1e-1d3c-4a63-9f6e-6d2a0c1f7e55"}
    asked = [
        _other(peer, f"{peer.name}_agent", path="/v1/messages", body=body, headers={**peer.headers, **session})
        for peer in peers
    ]
    series = rig.alternate(asked, plan.load("rate", _CLOSED), plan.rounds)
    direct, nginx, ours = (peer.name for peer in asked)
    added = {name: series.added(name, direct, _p50) for name in (nginx, ours)}
    n = sum(sample.result.lat_us.n for sample in series.of(ours))
    report.add("agent_prompt_added_p50", added[ours], "us", better="lower", n=n)
    report.add("agent_prompt_added_p50_nginx", added[nginx], "us", better="lower", n=n)
    _add_ratio(report, "agent_prompt_added_p50_to_nginx", added[ours], added[nginx], "nginx", (4.0, 2.0), n)


def _measure_tool_calls(report: Report, plan: Plan, rig: Rig, gateway: Peer, home: Path) -> None:
    """What is added to a tool's call beside what is added to a chat, each against its server without a gateway."""
    called = {"name": _TOOL, "arguments": {"text": _NUMBER}, "_meta": _META}
    body = _written(home / "call.json", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called})
    direct_tool = _other(rig.direct, "direct_tool", path="/mcp", body=body)
    headers = {**gateway.headers, **_MCP_HEADERS}
    tool = _other(gateway, "tool_call", path="/mcp", body=body, headers=headers)
    series = rig.alternate([rig.direct, gateway, direct_tool, tool], plan.load("rate", _CLOSED), plan.rounds)
    chat = series.added(gateway.name, rig.direct.name, _p50)
    call = series.added(tool.name, direct_tool.name, _p50)
    n = sum(sample.result.lat_us.n for sample in series.of(tool.name))
    report.add("tool_call_added_p50", call, "us", better="lower", n=n)
    report.add("tool_call_added_p50_chat", chat, "us", better="lower", n=n)
    _add_ratio(report, "tool_call_added_p50_to_chat", call, chat, "a plain chat", (3.0, 1.5), n)


def _add_ratio(
    report: Report, metric: str, ours: float, other: float, name: str, bounds: tuple[float, float], n: int
) -> None:
    if other <= 0:
        report.add_absent(metric, f"x {name}", f"{name} adds nothing that can be measured: {other:.1f} us")
        return
    report.add(metric, ours / other, f"x {name}", must=bounds[0], stretch=bounds[1], better="lower", n=n)


def _p50(sample: Sample) -> float:
    return quantile_of(sample.result.lat_us, "p50")


def _other(peer: Peer, name: str, **changes: Any) -> Peer:
    """Return a peer that is asked for something else. Its requests are the peer's."""
    return replace(peer, name=name, counts_as=peer.counted, **changes)


def _written(file: Path, body: dict[str, Any]) -> Path:
    file.write_text(json.dumps(body, separators=(",", ":")))
    return file


def _message(size: int, tools: int) -> dict[str, Any]:
    """Return a body of the Messages API of about that many bytes: system, tools, and turns that read and edit files."""
    body: dict[str, Any] = {"model": _NATIVE_MODEL, "max_tokens": 64}
    if tools:
        body["system"] = [{"type": "text", "text": "You are a coding agent. " * 100}]
        body["tools"] = [_tool(number) for number in range(tools)]
    turns: list[dict[str, Any]] = []
    last = {"role": "user", "content": f"{_NUMBER} {'gateway token ' * 60}" if not tools else f"Go on: {_NUMBER}"}
    while tools and len(json.dumps([*turns, last])) + len(json.dumps(body)) < size:
        call = {"type": "tool_use", "id": f"toolu_{len(turns)}", "name": "tool_0", "input": {"path": "src/app.py"}}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "def main() -> None:\n    pass\n" * 60}
        asked = {"role": "user", "content": "Read the file."} if not turns else None
        turns += [asked] if asked else []
        turns += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return body | {"messages": [*turns, last] if not turns else [*turns[:-1], _joined(turns[-1], last)]}


def _joined(results: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    return results | {"content": [*results["content"], {"type": "text", "text": last["content"]}]}


def _tool(number: int) -> dict[str, Any]:
    path = {"type": "string", "description": "The path below the repository's root."}
    line = {"type": "integer", "minimum": 1, "description": "The first line, counted from 1."}
    schema = {"type": "object", "properties": {"path": path, "line": line}, "required": ["path"]}
    described = "Look at a file of the repository, from a line on. Use it before you change what you have not seen. "
    return {"name": f"tool_{number}", "description": described * 3, "input_schema": schema}


def _configuration(rig: Rig) -> dict[str, Any]:
    config = configuration(MODEL, rig.mock_target)
    native = {"name": "native", **rig.mock_target, "settings": {"apis": ["messages"]}}
    config["pools"].append({"name": "native", "targets": [native]})
    config["models"].append({"name": _NATIVE_MODEL, "pool": "native"})
    [price] = config["prices"]
    config["prices"].append({**price, "model": _NATIVE_MODEL, "version": "bench/2"})
    url = f"http://127.0.0.1:{rig.mock_port}/mcp"
    config["mcp_servers"] = [{"name": _TOOL.partition("__")[0], "url": url, "price_usd": "0.0001"}]
    return config
