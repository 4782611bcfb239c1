"""MCP servers behind `/mcp`: listed, called, recorded and paid for, by the official SDK's client and server."""

import asyncio
from typing import Any

import pytest
import yaml

from contracts.pricing.money import PICO_USD_PER_USD
from tests.gateway.conftest import KEY
from tests.gateway.mcp.conftest import (
    call,
    post,
    sdk_client,
    tool_calls,
    weather_server,
    with_servers,
)


def text_of(result: Any) -> str:
    """Return the text of a tool result's first block."""
    text: str = result.content[0].text
    return text


OTHER_KEY = "tk-" + "B" * 43
OTHER = {"key": OTHER_KEY, "tenant": "acme", "team": "ops", "id": "key_2"}


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
@pytest.mark.parametrize("options", [{}, {"json_response": True}, {"stateless_http": True}])
async def test_the_official_client_lists_and_calls_tools_of_the_official_server(
    start_gateway, serve_mcp, mode, options
):
    gateway = await start_gateway(with_servers({"name": "weather", "url": serve_mcp(**options).url}))
    async with sdk_client(gateway, mode=mode) as client:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == [
            f"weather__{name}" for name in ("get_weather", "add", "say", "fail", "long")
        ]
        assert listed.tools[0].input_schema["required"] == ["city"]
        result = await client.call_tool("weather__get_weather", {"city": "Rome"})
        assert (text_of(result), result.is_error) == ("sunny in Rome", False)
        added = await client.call_tool("weather__add", {"a": 2, "b": 3})
        assert added.structured_content == {"result": 5}
        failed = await client.call_tool("weather__fail", {})
        assert failed.is_error and "the roof is gone" in text_of(failed)
    records = tool_calls(gateway)
    assert [(one.model, one.outcome, one.finish_reason) for one in records] == [
        ("weather__get_weather", "ok", "tool_result"),
        ("weather__add", "ok", "tool_result"),
        ("weather__fail", "ok", "tool_error"),
    ]
    assert {(one.operation, one.api, one.provider, one.replica) for one in records} == {
        ("execute_tool", "mcp", "weather", "weather")
    }
    assert {(one.who.tenant, one.who.key_id, one.cost_basis, one.cost_pico_usd) for one in records} == {
        ("acme", "key_1", "unpriced", None)
    }


async def test_several_servers_have_their_tools_under_their_names_and_one_alone_under_its_own(start_gateway, serve_mcp):
    first, second = serve_mcp(), serve_mcp()
    gateway = await start_gateway(with_servers({"name": "b-two", "url": second.url}, {"name": "one", "url": first.url}))
    async with sdk_client(gateway) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[0] == "b-two__get_weather" and names[5] == "one__get_weather" and len(names) == 10
    async with sdk_client(gateway, "/mcp/one") as client:
        assert [tool.name for tool in (await client.list_tools()).tools][0] == "get_weather"
        assert text_of(await client.call_tool("say", {"text": "hello"})) == "hello"
    assert tool_calls(gateway)[0].model == "one__say"
    status, _, answer = await post(gateway, "tools/list", path="/mcp/none")
    assert status == 404 and "no MCP server 'none'" in answer["error"]["message"]


async def test_a_server_that_is_away_takes_no_other_with_it(start_gateway, serve_mcp):
    gateway = await start_gateway(
        with_servers({"name": "away", "url": "http://127.0.0.1:9/mcp"}, {"name": "here", "url": serve_mcp().url})
    )
    async with sdk_client(gateway) as client:
        assert {tool.name.split("__")[0] for tool in (await client.list_tools()).tools} == {"here"}
        assert not (await client.call_tool("here__say", {"text": "hi"})).is_error


async def test_a_denied_tool_is_neither_listed_nor_callable_and_looks_like_one_that_is_not_there(
    start_gateway, serve_mcp
):
    rules = [
        {"name": "no-adding", "effect": "deny", "tools": ["weather__a*"], "tenant": "acme", "key": "key_1"},
        {"name": "ops-may-add", "effect": "allow", "tools": ["*__add"], "tenant": "acme", "team": "ops"},
    ]
    server = {"name": "weather", "url": serve_mcp().url}
    closed = {"name": "closed", "url": serve_mcp().url, "default": "deny"}
    config = with_servers(server, closed, tool_rules=rules)
    config["keys"].append(OTHER)
    gateway = await start_gateway(config)
    for key, expected in ((KEY, {"weather": 4}), (OTHER_KEY, {"weather": 5, "closed": 1})):
        _, _, answer = await post(gateway, "tools/list", key=key)
        names = [tool["name"] for tool in answer["result"]["tools"]]
        found = {name.split("__")[0]: 0 for name in names}
        for name in names:
            found[name.split("__")[0]] += 1
        assert found == expected
    denied = await post(gateway, "tools/call", {"name": "weather__add", "arguments": {"a": 1, "b": 2}})
    unknown = await post(gateway, "tools/call", {"name": "weather__nothing", "arguments": {}})
    assert denied[0] == unknown[0] == 400
    assert denied[2]["error"] == {"code": -32602, "message": "Unknown tool: weather__add"}
    assert unknown[2]["error"] == {"code": -32602, "message": "Unknown tool: weather__nothing"}
    assert tool_calls(gateway) == []
    assert (await call(gateway, "weather__add", {"a": 1, "b": 2}, key=OTHER_KEY))["structuredContent"] == {"result": 3}


async def test_a_changed_rule_holds_as_soon_as_the_configuration_is_read(start_gateway, serve_mcp, tmp_path):
    config = with_servers({"name": "weather", "url": serve_mcp().url})
    gateway = await start_gateway(config)
    assert not (await call(gateway, "weather__say", {"text": "hi"})).get("isError")
    config["tool_rules"] = [{"name": "none", "effect": "deny", "tools": ["weather__say"]}]
    (tmp_path / "gateway0.yaml").write_text(yaml.safe_dump(config))

    async def is_denied() -> bool:
        _, _, answer = await post(gateway, "tools/call", {"name": "weather__say", "arguments": {"text": "hi"}})
        return "error" in answer

    for _ in range(500):
        if await is_denied():
            break
        await asyncio.sleep(0.01)
    assert await is_denied()
    _, _, answer = await post(gateway, "tools/list")
    assert "weather__say" not in [tool["name"] for tool in answer["result"]["tools"]]


async def test_a_call_costs_what_its_tool_costs_and_is_charged_to_budgets(start_gateway, serve_mcp):
    server = {
        "name": "weather",
        "url": serve_mcp().url,
        "price_usd": "0.001",
        "tools": [{"match": "add", "price_usd": "0.01"}, {"match": "say", "price_usd": "0"}],
    }
    budget = {"id": "bud", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "0.025"}
    gateway = await start_gateway(with_servers(server, budgets=[budget]))
    for _ in range(2):
        assert (await call(gateway, "weather__add", {"a": 1, "b": 2}))["structuredContent"] == {"result": 3}
    refused = await call(gateway, "weather__add", {"a": 1, "b": 2})
    assert refused["isError"] and refused["_meta"]["dev.tollkeeper/error"]["code"] == "insufficient_quota"
    assert not (await call(gateway, "weather__get_weather", {"city": "x"})).get("isError"), "0.004 USD are left"
    assert not (await call(gateway, "weather__say", {"text": "x"})).get("isError")
    records = tool_calls(gateway)
    cent = PICO_USD_PER_USD // 100
    assert [(one.outcome, one.cost_pico_usd, one.charged_pico_usd, one.limit) for one in records] == [
        ("ok", cent, cent, ""),
        ("ok", cent, cent, ""),
        ("rejected", 0, 0, "bud"),
        ("ok", cent // 10, cent // 10, ""),
        ("ok", 0, 0, ""),
    ]
    assert all(one.usage.total_tokens == 0 for one in records if one.outcome == "ok")


async def test_one_hard_budget_holds_for_tokens_and_tools_together(start_gateway, serve_mcp):
    server = {"name": "weather", "url": serve_mcp().url, "price_usd": "0.0003"}
    budget = {"id": "bud", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "0.0004"}
    gateway = await start_gateway(with_servers(server, budgets=[budget]))
    assert not (await call(gateway, "weather__say", {"text": "x"})).get("isError")
    statuses = [(await gateway.chat(max_tokens=20)).status for _ in range(8)]
    assert statuses[0] == 200 and statuses[-1] == 402 or 429 in statuses, "what tools took is not there for tokens"
    assert (await call(gateway, "weather__say", {"text": "x"}))["isError"]
    charged = sum(one.charged_pico_usd or 0 for one in gateway.requests())
    assert charged <= 400_000_000


async def test_a_tool_without_a_price_is_refused_where_money_is_counted(start_gateway, serve_mcp):
    budget = {"id": "bud", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "1"}
    gateway = await start_gateway(with_servers({"name": "weather", "url": serve_mcp().url}, budgets=[budget]))
    refused = await call(gateway, "weather__say", {"text": "x"})
    assert refused["_meta"]["dev.tollkeeper/error"]["code"] == "unpriced_tool"
    assert "price_usd" in refused["content"][0]["text"]


async def test_a_limit_that_names_a_tool_is_the_tools_rate_limit(start_gateway, serve_mcp):
    limit = {
        "id": "two",
        "tenant": "acme",
        "level": "key",
        "subject": "*",
        "model": "weather__say",
        "metric": "requests",
        "window": "minute",
        "amount": 2,
    }
    gateway = await start_gateway(with_servers({"name": "weather", "url": serve_mcp().url}, limits=[limit]))
    answers = [await call(gateway, "weather__say", {"text": "x"}) for _ in range(3)]
    assert [bool(one.get("isError")) for one in answers] == [False, False, True]
    told = answers[2]["_meta"]["dev.tollkeeper/error"]
    assert told["code"] == "rate_limit_exceeded" and told["retry_after_seconds"] > 0
    assert not (await call(gateway, "weather__add", {"a": 1, "b": 2})).get("isError")


async def test_the_keys_of_a_server_are_sent_to_it_and_the_callers_is_not(start_gateway, serve_mcp, monkeypatch):
    seen: list[dict[str, str]] = []
    server = weather_server()
    app = server.streamable_http_app()

    async def noting(scope, receive, send):
        if scope["type"] == "http":
            seen.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await app(scope, receive, send)

    monkeypatch.setattr(server, "streamable_http_app", lambda **_: noting)
    monkeypatch.setenv("WEATHER_API_KEY", "s3cret")
    monkeypatch.setenv("WEATHER_TENANT", "t-7")
    gateway = await start_gateway(
        with_servers(
            {
                "name": "weather",
                "url": serve_mcp(server).url,
                "key": "env:WEATHER_API_KEY",
                "headers": {"x-tenant-key": "env:WEATHER_TENANT"},
            }
        )
    )
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert not (await call(gateway, "weather__say", {"text": "x"}, headers={"traceparent": trace})).get("isError")
    assert {one["authorization"] for one in seen} == {"Bearer s3cret"}
    assert {one["x-tenant-key"] for one in seen} == {"t-7"}
    assert seen[-1]["traceparent"].split("-")[1] == trace.split("-")[1]
    assert not any(KEY in value for one in seen for value in one.values())


async def test_calls_have_the_callers_run_conversation_tags_and_session_on_their_record(start_gateway, serve_mcp):
    gateway = await start_gateway(with_servers({"name": "weather", "url": serve_mcp().url}))
    headers = {"x-tollkeeper-run-id": "run-1", "x-tollkeeper-tags": "repo=shop", "mcp-session-id": "made-up"}
    await call(gateway, "weather__say", {"text": "x"}, headers=headers)
    [record] = tool_calls(gateway)
    assert (record.run_id, record.conversation_id, record.who.tags) == ("run-1", "made-up", {"repo": "shop"})
    assert record.tools == ["weather__say"] and len(record.tool_marks) == 1


async def test_a_key_that_is_held_to_other_endpoints_may_not_use_mcp(start_gateway, serve_mcp):
    config = with_servers({"name": "weather", "url": serve_mcp().url})
    config["keys"].append({**OTHER, "endpoints": ["chat.completions"]})
    gateway = await start_gateway(config)
    status, _, answer = await post(gateway, "tools/list", key=OTHER_KEY)
    assert status == 403 and answer["error"]["data"] == {"code": "permission_denied"}
    status, _, answer = await post(gateway, "tools/list", key="tk-" + "C" * 43)
    assert status == 401 and answer["jsonrpc"] == "2.0"
