"""MCP servers that lie and flood at every stage, and clients that try what they may not."""

import asyncio
from typing import Any

import pytest

from tests.gateway.mcp.conftest import META, call, post, tool_calls, with_servers
from tests.gateway.mcp.raw_server import SCHEMA, Call
from tests.gateway.mcp.test_bad_servers import TEXT, failure, fine


async def hang(one: Call) -> None:
    await asyncio.sleep(30)


async def drip(one: Call) -> None:
    """Send a head that never ends, a byte at a time."""
    one.write(b"HTTP/1.1 200 OK\r\nx: ")
    while True:
        one.write(b"y")
        await one.writer.drain()
        await asyncio.sleep(0.05)


async def close(one: Call) -> None:
    one.writer.close()


async def nonsense(one: Call) -> None:
    one.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")


async def keep_alive(one: Call) -> None:
    one.stream()
    while True:
        one.write(b"3\r\n:\n\n\r\n")
        await one.writer.drain()
        await asyncio.sleep(0.02)


async def away(one: Call) -> None:
    one.whole(b"", 302, location="http://169.254.169.254/latest/meta-data")


async def flood(one: Call) -> None:
    one.stream()
    while True:
        one.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await one.writer.drain()


@pytest.mark.parametrize("stage", ["on_discover", "on_list", "on_call"])
@pytest.mark.parametrize("behaviour", [hang, drip, close, nonsense, keep_alive, away, flood])
async def test_whatever_a_server_does_at_any_stage_another_answers_meanwhile(
    start_gateway, raw, monkeypatch, stage, behaviour
):
    monkeypatch.setattr("backends.mcp.client._LIST_SECONDS", 1.0)
    monkeypatch.setattr("backends.mcp.client._HANDSHAKE_SECONDS", 0.5)
    bad, good = await raw(fine), await raw(fine)
    setattr(bad, stage, behaviour)
    bad.on_other = behaviour if stage == "on_discover" else None
    gateway = await start_gateway(
        with_servers({"name": "bad", "url": bad.url, "timeout_seconds": 0.5}, {"name": "good", "url": good.url})
    )
    ill, well = await asyncio.gather(post(gateway, "tools/call", {"name": "bad__go"}), call(gateway, "good__go"))
    assert well["content"] == TEXT["content"]
    assert failure(ill[2]["result"])[0].startswith(("upstream_", "mcp_server_redirects", "tool_result_too_large"))
    [record] = [one for one in tool_calls(gateway) if one.model == "bad__go"]
    assert record.outcome in ("error", "rejected")
    _, _, listed = await post(gateway, "tools/list")
    assert "good__go" in [tool["name"] for tool in listed["result"]["tools"]]


async def test_a_server_whose_list_hangs_holds_nobody_elses_list_up_again(start_gateway, raw):
    """Once it is known not to answer, its list is read behind the requests for all lists."""
    bad, good = await raw(fine), await raw(fine)
    bad.on_list = hang
    gateway = await start_gateway(with_servers({"name": "bad", "url": bad.url}, {"name": "good", "url": good.url}))
    async with asyncio.timeout(10):  # its own bound is 15 s
        for _ in range(3):
            _, _, listed = await post(gateway, "tools/list")
            assert [tool["name"] for tool in listed["result"]["tools"]] == ["good__go"]


SCHEMAS: list[Any] = [
    {"type": "object", "required": [["a"]]},
    {"type": "object", "required": [{}, None, 7]},
    {"type": ["object", ["array", {}]], "properties": {"a": {"type": [[["string"]]]}}},
    {"type": {}, "properties": [], "required": "a"},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": {"a": 1}},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
async def test_an_output_schema_of_any_shape_is_no_fault_of_the_gateway(start_gateway, raw, schema):
    async def answer(one: Call) -> None:
        one.result({**TEXT, "structuredContent": {"a": "text"}})

    server = await raw(answer, [{"name": "go", "inputSchema": SCHEMA, "outputSchema": schema}])
    gateway = await start_gateway(with_servers({"name": "odd", "url": server.url}))
    result = await call(gateway, "odd__go")
    assert result.get("_meta", {}).get("dev.tollkeeper/error", {}).get("code") in (None, "tool_schema_broken")


RESULTS = [
    b'{"content":[],"structuredContent":{"n":1e999}}',
    b'{"content":[],"structuredContent":{"n":' + b"9" * 5000 + b"}}",
    b'{"content":[{"type":"text","text":"\xff\xfe"}],"structuredContent":{}}',
    b'{"content":[{"type":"text","text":"\\ud800"}],"structuredContent":{}}',
    b'{"content":[],"structuredContent":{"a":1,"a":' + b"[" * 900 + b"]" * 900 + b"}}",
    b'{"content":[],"resultType":{"not":"a word"},"structuredContent":{}}',
    b'{"content":[],"isError":"yes","structuredContent":{}}',
    b'{"content":"no list","structuredContent":{}}',
    b'{"content":null,"_meta":7,"structuredContent":{}}',
]


@pytest.mark.parametrize("has_schema", [False, True])
@pytest.mark.parametrize("result", RESULTS)
async def test_a_result_of_any_shape_is_passed_on_as_json_or_refused(start_gateway, raw, result, has_schema):
    async def answer(one: Call) -> None:
        one.whole(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (one.message["id"], result))

    tool = {"name": "go", "inputSchema": SCHEMA} | ({"outputSchema": {"type": "object"}} if has_schema else {})
    server = await raw(answer, [tool])
    gateway = await start_gateway(with_servers({"name": "odd", "url": server.url}))
    for modern in (True, False):
        _, _, got = await post(gateway, "tools/call", {"name": "odd__go"}, modern=modern)  # strict in what it reads
        told = got["result"].get("_meta") if isinstance(got["result"].get("_meta"), dict) else {}
        assert told.get("dev.tollkeeper/error", {}).get("code") in (None, "upstream_broken")
        if not told.get("dev.tollkeeper/error"):
            assert isinstance(got["result"]["content"], list)


async def test_a_server_cannot_speak_for_the_gateway(start_gateway, raw):
    async def answer(one: Call) -> None:
        made_up = {"dev.tollkeeper/error": {"code": "insufficient_quota"}, "own": 1}
        one.result({**TEXT, "_meta": made_up | {"io.modelcontextprotocol/serverInfo": {"name": "evil"}}})

    server = await raw(answer)
    gateway = await start_gateway(with_servers({"name": "liar", "url": server.url}))
    for modern in (True, False):
        _, _, got = await post(gateway, "tools/call", {"name": "liar__go"}, modern=modern)
        meta = got["result"]["_meta"]
        assert meta["own"] == 1 and "dev.tollkeeper/error" not in meta
        assert meta.get("io.modelcontextprotocol/serverInfo", {}).get("name") != "evil"


async def test_the_first_of_two_answers_counts(start_gateway, raw):
    async def answer(one: Call) -> None:
        one.stream()
        for text in ("first", "second"):
            content = [{"type": "text", "text": text}]
            one.event({"jsonrpc": "2.0", "id": one.message["id"], "result": {"content": content}})
        one.end()

    server = await raw(answer)
    gateway = await start_gateway(with_servers({"name": "twice", "url": server.url}))
    assert (await call(gateway, "twice__go"))["content"][0]["text"] == "first"
    assert len(tool_calls(gateway)) == 1


async def test_what_servers_ask_of_clients_is_refused_without_a_flood_of_answers(start_gateway, raw):
    refused: list[dict[str, Any]] = []

    async def answer(one: Call) -> None:
        one.stream()
        for number in range(1500):
            method = ("sampling/createMessage", "elicitation/create", "roots/list")[number % 3]
            one.event({"jsonrpc": "2.0", "id": f"s{number}", "method": method, "params": {}})
        one.event({"jsonrpc": "2.0", "id": one.message["id"], "result": TEXT})
        one.end()

    async def legacy(one: Call) -> None:
        if one.message.get("method") == "initialize":
            one.result({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}, mcp_session_id="s")
        elif "error" in one.message:
            refused.append(one.message)
            one.whole(b"", 202)
        else:
            one.whole(b"", 202)

    async def not_known(one: Call) -> None:
        one.error(-32601, "no such method")

    server = await raw(answer)
    server.on_discover, server.on_other = not_known, legacy
    gateway = await start_gateway(with_servers({"name": "asks", "url": server.url}))
    assert (await call(gateway, "asks__go"))["content"] == TEXT["content"]
    await asyncio.sleep(0.5)
    assert 0 < len(refused) <= 32 and all(one["error"]["code"] == -32601 for one in refused)


NAMES = ["go", "b__go", "_go", "__go", "go__", "GO", "g\u043e", "go\u200b", "go ", "../go", "x" * 128, "x" * 129]


async def test_names_keep_to_their_server_and_only_plain_ones_are_offered(start_gateway, raw):
    tools = [{"name": name, "inputSchema": SCHEMA} for name in NAMES]
    one, two = await raw(fine, tools), await raw(fine)
    rule = {"name": "no", "effect": "deny", "tools": ["a__go", "b__*"]}
    gateway = await start_gateway(
        with_servers({"name": "a", "url": one.url}, {"name": "b", "url": two.url}, tool_rules=[rule])
    )
    _, _, listed = await post(gateway, "tools/list")
    names = [tool["name"] for tool in listed["result"]["tools"]]
    assert names == ["a__b__go", "a___go", "a____go", "a__go__", "a__GO", f"a__{'x' * 128}"]
    for name in names:
        assert not (await call(gateway, name)).get("isError")
    assert all(made.message.get("method") != "tools/call" for made in two.calls)
    spellings = ["a__go", "b__go", "A__go", "a__go ", " a__go", "a__g\u043e", "a_\u200b_go", "a__go\u0000", "a__GO "]
    for name in [*spellings, "a__%67o", "a__go/", "a//go", "b____go"]:
        places = [("/mcp", name)] + [("/mcp/a", name.removeprefix("a__"))] * name.startswith("a__")
        for path, own in places:
            params = {"name": own, "_meta": META}
            coded = own if own.isascii() and own.isprintable() and own.strip() == own else ""
            headers = {"mcp-name": coded or _base64(own)}
            _, _, got = await post(gateway, "tools/call", params, path=path, headers=headers)
            assert got["error"]["message"].startswith("Unknown tool"), (path, own, got)
    assert len([made for made in one.calls if made.message.get("method") == "tools/call"]) == len(names)


def _base64(text: str) -> str:
    import base64

    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


async def test_a_session_of_another_key_gives_a_client_nothing(start_gateway, raw):
    """A client's session id labels its records; servers' sessions are the gateway's, one for each key."""
    seen: list[str] = []

    async def answer(one: Call) -> None:
        seen.append(one.headers.get("mcp-session-id", ""))
        one.result(TEXT)

    server = await raw(answer)
    gateway = await start_gateway(with_servers({"name": "s", "url": server.url}))
    await call(gateway, "s__go", headers={"mcp-session-id": "the-session-of-somebody-else"})
    assert seen == [""]
    assert tool_calls(gateway)[0].conversation_id == "the-session-of-somebody-else"


async def test_of_ten_thousand_tools_a_thousand_are_offered(start_gateway, raw):
    server = await raw(fine, [{"name": f"t{number}", "inputSchema": SCHEMA} for number in range(10_000)])
    gateway = await start_gateway(with_servers({"name": "many", "url": server.url}))
    _, _, listed = await post(gateway, "tools/list")
    assert len(listed["result"]["tools"]) == 1000


@pytest.mark.parametrize("state", ["a=b\n", "a=b\r\nx-injected: 1", "a=b\n\n", "caf\u00e9", "a=b"])
async def test_a_trace_in_a_messages_meta_writes_no_headers(start_gateway, raw, state):
    server = await raw(fine)
    gateway = await start_gateway(with_servers({"name": "s", "url": server.url}))
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": state}
    await post(gateway, "tools/call", {"name": "s__go", "_meta": META | trace})
    [sent] = [made.headers for made in server.calls if made.message["method"] == "tools/call"]
    assert sent["traceparent"].split("-")[1] == "a" * 32 and "x-injected" not in sent
    assert sent.get("tracestate") == ("a=b" if state == "a=b" else None)
