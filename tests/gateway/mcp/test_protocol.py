"""What the two eras of the protocol ask of `/mcp`, message by message, and what is told to those who break it."""

import json
from typing import Any
from uuid import UUID

import pytest

from tests.gateway.conftest import KEY
from tests.gateway.mcp.conftest import META, MODERN, post, tool_calls, with_servers

LEGACY: dict[str, Any] = {"modern": False}


@pytest.fixture
async def gateway(start_gateway, serve_mcp):
    return await start_gateway(with_servers({"name": "weather", "url": serve_mcp().url}))


async def test_discovery_names_the_revisions_that_are_spoken(gateway):
    status, _, answer = await post(gateway, "server/discover")
    assert status == 200 and answer["id"] == 1
    result = answer["result"]
    assert result["supportedVersions"] == ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"]
    assert (result["resultType"], result["cacheScope"], result["capabilities"]) == (
        "complete",
        "private",
        {"tools": {}},
    )
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "tollkeeper"


@pytest.mark.parametrize(
    ("asked", "given"),
    [("2025-11-25", "2025-11-25"), ("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")],
)
async def test_a_legacy_client_is_given_a_revision_and_no_session(gateway, asked, given):
    params = {"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    status, headers, answer = await post(gateway, "initialize", params, **LEGACY)
    assert (status, answer["result"]["protocolVersion"]) == (200, given)
    assert "resultType" not in answer["result"] and "mcp-session-id" not in headers
    status, _, answer = await post(
        gateway, "", whole={"jsonrpc": "2.0", "method": "notifications/initialized"}, **LEGACY
    )
    assert (status, answer) == (202, None)
    _, _, answer = await post(gateway, "ping", headers={"mcp-protocol-version": given}, **LEGACY)
    assert answer["result"] == {}
    _, _, answer = await post(gateway, "tools/list", headers={"mcp-protocol-version": given}, **LEGACY)
    assert len(answer["result"]["tools"]) == 5 and "ttlMs" not in answer["result"]


async def test_what_a_legacy_client_asks_for_in_vain_is_an_error_with_status_200(gateway):
    status, _, answer = await post(gateway, "resources/list", **LEGACY)
    assert (status, answer["error"]["code"]) == (200, -32601)
    status, _, answer = await post(gateway, "tools/call", {"name": "nothing"}, **LEGACY)
    assert (status, answer["error"]) == (200, {"code": -32602, "message": "Unknown tool: nothing"})


@pytest.mark.parametrize("given", [5, "x", [1], True])
async def test_arguments_that_are_no_object_reach_no_server(gateway, given):
    _, _, listed = await post(gateway, "tools/list", **LEGACY)
    name = listed["result"]["tools"][0]["name"]
    status, _, answer = await post(gateway, "tools/call", {"name": name, "arguments": given}, **LEGACY)
    assert (status, answer["error"]["code"]) == (200, -32602)
    assert answer["error"]["message"] == f"the arguments of {name!r} must be an object"


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "made/up"])
async def test_what_the_modern_revision_has_not_is_not_found(gateway, method):
    status, _, answer = await post(gateway, method, id="a")
    assert (status, answer["id"], answer["error"]["code"]) == (404, "a", -32601)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"mcp-protocol-version": ""}, -32020),
        ({"mcp-protocol-version": "2025-11-25"}, -32020),
        ({"mcp-method": ""}, -32020),
        ({"mcp-method": "tools/list"}, -32020),
        ({"mcp-name": ""}, -32020),
        ({"mcp-name": "weather__add"}, -32020),
        ({"mcp-name": "=?base64?!!?="}, -32020),
        ({"mcp-name": "=?base64?d2VhdGhlcl9fc2F5?="}, None),
        ({"content-type": "text/plain"}, -32600),
    ],
)
async def test_headers_must_say_what_the_body_says(gateway, headers, code):
    params = {"name": "weather__say", "arguments": {"text": "x"}}
    status, _, answer = await post(gateway, "tools/call", params, headers=headers, id=7)
    assert answer["id"] == 7
    if code is None:
        assert status == 200 and answer["result"]["content"][0]["text"] == "x"
    else:
        assert (status, answer["error"]["code"]) == (415 if "content-type" in headers else 400, code)
        assert tool_calls(gateway) == []


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({}, -32602),
        ({"io.modelcontextprotocol/protocolVersion": MODERN}, -32602),
        ({"io.modelcontextprotocol/clientCapabilities": {}}, -32602),
        ({**META, "io.modelcontextprotocol/clientCapabilities": []}, -32602),
        ({**META, "io.modelcontextprotocol/protocolVersion": 3}, -32602),
    ],
)
async def test_a_modern_request_carries_its_version_and_capabilities(gateway, meta, code):
    status, _, answer = await post(gateway, "tools/list", {"_meta": meta})
    assert (status, answer["error"]["code"]) == (400, code)


async def test_an_unknown_revision_is_refused_with_those_that_are_known(gateway):
    meta = {**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}
    status, _, answer = await post(
        gateway, "tools/list", {"_meta": meta}, headers={"mcp-protocol-version": "2031-01-01"}
    )
    assert (status, answer["error"]["code"], answer["error"]["data"]["requested"]) == (400, -32022, "2031-01-01")
    assert MODERN in answer["error"]["data"]["supported"]


@pytest.mark.parametrize(
    ("whole", "status", "code"),
    [
        (b"{", 400, -32700),
        (b"\xff\xfe", 400, -32700),
        (b"[]", 400, -32600),
        ([{"jsonrpc": "2.0", "id": 1, "method": "ping"}], 400, -32600),
        ({"id": 1, "method": "ping"}, 400, -32600),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, 400, -32600),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, 400, -32600),
        ({"jsonrpc": "2.0", "id": {}, "method": "ping"}, 400, -32600),
        ({"jsonrpc": "2.0", "id": 1}, 400, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}, 400, -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 5}}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, -32600),
    ],
)
async def test_what_is_no_message_is_told_in_the_protocols_words(gateway, whole, status, code):
    found, _, answer = await post(gateway, "", whole=whole, **LEGACY)
    assert found == status and answer["error"]["code"] == code, json.dumps(answer)


async def test_a_response_and_a_notification_are_taken_without_an_answer(gateway):
    for whole in ({"jsonrpc": "2.0", "id": 4, "result": {}}, {"jsonrpc": "2.0", "method": "notifications/cancelled"}):
        status, _, answer = await post(gateway, "", whole=whole, **LEGACY)
        assert (status, answer) == (202, None)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://evil.example", 403),
        ("null", 403),
        ("http://[", 403),
        ("http://localhost:3000", 200),
        ("http://127.0.0.1:9", 200),
    ],
)
async def test_pages_of_other_hosts_may_not_call(gateway, origin, status):
    found, _, _ = await post(gateway, "tools/list", headers={"origin": origin})
    assert found == status


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_there_is_no_stream_to_get_and_no_session_to_delete(gateway, method):
    answer = await gateway.ask(
        f"{method} /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode()
    )
    assert (answer.status, answer.headers["allow"]) == (405, "post")
    assert answer.json["error"]["code"] == 405


async def test_lists_and_unknown_tools_count_as_requests(start_gateway, serve_mcp):
    limit = {"id": "two", "tenant": "acme", "level": "tenant", "metric": "requests", "window": "minute", "amount": 2}
    gateway = await start_gateway(with_servers({"name": "weather", "url": serve_mcp().url}, limits=[limit]))
    await post(gateway, "tools/list")
    await post(gateway, "tools/call", {"name": "weather__nothing"})
    status, headers, answer = await post(gateway, "tools/list")
    assert status == 429 and answer["error"]["data"]["code"] == "rate_limit_exceeded"
    assert tool_calls(gateway) == []


async def test_rate_limit_headers_are_on_a_calls_answer(start_gateway, serve_mcp):
    limit = {"id": "ten", "tenant": "acme", "level": "tenant", "metric": "requests", "window": "minute", "amount": 10}
    gateway = await start_gateway(with_servers({"name": "weather", "url": serve_mcp().url}, limits=[limit]))
    _, headers, _ = await post(gateway, "tools/call", {"name": "weather__say", "arguments": {"text": "x"}})
    assert headers["x-ratelimit-limit-requests"] == "10" and headers["x-ratelimit-remaining-requests"] == "9"
    assert headers["x-request-id"] == str(UUID(bytes=tool_calls(gateway)[0].request_id))


async def test_a_path_that_is_not_there_is_told_in_the_protocols_shape(start_gateway):
    gateway = await start_gateway(with_servers({"name": "w", "url": "http://127.0.0.1:9/mcp"}))
    status, _, answer = await post(gateway, "tools/list", path="/mcp/w/further")
    assert (status, answer["jsonrpc"], answer["error"]["data"]["code"]) == (404, "2.0", "not_found")
    assert "POST /mcp/{server}" in answer["error"]["message"]
