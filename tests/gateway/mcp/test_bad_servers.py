"""MCP servers that hang, flood, lie, redirect or break off: bounded, recorded, told as a tool's error, and no other
server notices."""

import asyncio
import json

import pytest

from tests.gateway.mcp.conftest import call, post, tool_calls, with_servers
from tests.gateway.mcp.raw_server import SCHEMA, Call

TEXT = {"content": [{"type": "text", "text": "fine"}]}


def failure(result):
    assert result["isError"] is True
    return result["_meta"]["dev.tollkeeper/error"]["code"], result["content"][0]["text"]


async def fine(one: Call) -> None:
    one.result(TEXT)


async def hang(one: Call) -> None:
    await asyncio.sleep(30)


async def redirect(one: Call) -> None:
    one.whole(b"", 307, location="http://127.0.0.1:9/elsewhere")


async def flood(one: Call) -> None:
    one.stream()
    for _ in range(200_000):
        one.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 1000}})
        await one.writer.drain()


async def many_messages(one: Call) -> None:
    one.stream()
    for _ in range(5_000):
        one.event({"jsonrpc": "2.0", "method": "notifications/x"})
    one.event({"jsonrpc": "2.0", "id": one.message["id"], "result": TEXT})
    one.end()


async def endless(one: Call) -> None:
    one.head(transfer_encoding="chunked")
    one.write(b"\r\n")
    while True:
        one.write(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
        await one.writer.drain()


async def break_off(one: Call) -> None:
    one.head(content_length="1000")
    one.write(b'\r\n{"jsonrpc"')
    one.writer.close()


async def not_json(one: Call) -> None:
    one.whole(b"<html>proxy</html>")


async def no_object(one: Call) -> None:
    one.result([1, 2])


async def no_content(one: Call) -> None:
    one.result({"something": 1})


async def other_id(one: Call) -> None:
    one.whole(json.dumps({"jsonrpc": "2.0", "id": 999_999, "result": TEXT}).encode())


async def crash(one: Call) -> None:
    one.whole(b"Traceback: /srv/app/secret.py", 500)


async def nested(one: Call) -> None:
    body = b'{"jsonrpc":"2.0","id":%d,"result":%b%b}' % (one.message["id"], b"[" * 1_900, b"]" * 1_900)
    one.whole(body)


async def refuse_key(one: Call) -> None:
    one.whole(b"{}", 401)


async def zipped(one: Call) -> None:
    one.whole(b"\x1f\x8b", content_encoding="gzip")


@pytest.mark.parametrize(
    ("behaviour", "code", "words"),
    [
        (hang, "upstream_timeout", "did not answer 'bad__go' within 0.5 s"),
        (redirect, "mcp_server_redirects", "does not follow"),
        (flood, "tool_result_too_large", "more than 4096 bytes"),
        (many_messages, "upstream_broken", "ended early or cannot be read"),
        (endless, "tool_result_too_large", "more than 4096 bytes"),
        (break_off, "upstream_broken", "ended early or cannot be read"),
        (not_json, "upstream_broken", "cannot be read"),
        (no_object, "upstream_broken", "cannot be read"),
        (no_content, "upstream_broken", "cannot be read"),
        (other_id, "upstream_broken", "cannot be read"),
        (crash, "upstream_broken", "cannot be read"),
        (nested, "upstream_broken", "cannot be read"),
        (refuse_key, None, "not set up correctly"),
        (zipped, "upstream_broken", "cannot be read"),
    ],
)
async def test_a_bad_server_is_a_tools_error_and_harms_no_other(start_gateway, raw, behaviour, code, words):
    bad, good = await raw(behaviour), await raw(fine)
    gateway = await start_gateway(
        with_servers(
            {"name": "bad", "url": bad.url, "timeout_seconds": 0.5, "max_result_bytes": 4096, "price_usd": "0.01"},
            {"name": "good", "url": good.url},
        )
    )
    answers = await asyncio.gather(call(gateway, "bad__go"), *(call(gateway, "good__go") for _ in range(3)))
    told, text = failure(answers[0])
    assert words in text and code in (None, told)
    assert "127.0.0.1" not in text and "Traceback" not in text and "/srv" not in text
    assert [one["content"][0]["text"] for one in answers[1:]] == ["fine"] * 3
    [record] = [one for one in tool_calls(gateway) if one.model == "bad__go"]
    assert (record.outcome, record.error_code, record.attempts) == ("error", told, 1)
    assert not any(one.outcome != "ok" for one in tool_calls(gateway) if one.model == "good__go")


@pytest.mark.parametrize(
    ("behaviour", "is_charged"),
    [(fine, True), (hang, True), (break_off, True), (refuse_key, False)],
)
async def test_a_tool_that_may_have_run_is_charged_and_one_that_has_not_is_free(
    start_gateway, raw, behaviour, is_charged
):
    server = await raw(behaviour)
    budget = {"id": "bud", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "1"}
    spec = {"name": "bad", "url": server.url, "timeout_seconds": 0.3, "price_usd": "0.01"}
    gateway = await start_gateway(with_servers(spec, budgets=[budget]))
    await call(gateway, "bad__go")
    [record] = tool_calls(gateway)
    assert record.charged_pico_usd == record.cost_pico_usd == (10_000_000_000 if is_charged else 0)


@pytest.mark.parametrize("size", [4095, 4096, 4097])
async def test_a_result_is_let_through_up_to_its_bound(start_gateway, raw, size):
    """Bounded is what the result takes as JSON; what is around it may take a little more."""

    async def answer(one: Call) -> None:
        empty = len(json.dumps({"content": [{"type": "text", "text": ""}]}))
        text = "x" * (size - empty)
        one.result({"content": [{"type": "text", "text": text}]})

    server = await raw(answer)
    gateway = await start_gateway(with_servers({"name": "bad", "url": server.url, "max_result_bytes": 4096}))
    result = await call(gateway, "bad__go")
    if size <= 4096:
        assert not result.get("isError")
    else:
        assert failure(result)[0] == "tool_result_too_large"


async def test_a_stream_that_does_not_end_after_its_response_is_left(start_gateway, raw):
    async def answer(one: Call) -> None:
        one.stream()
        one.event({"jsonrpc": "2.0", "id": one.message["id"], "result": TEXT})
        await one.writer.drain()
        await asyncio.sleep(30)

    server = await raw(answer)
    gateway = await start_gateway(with_servers({"name": "slow", "url": server.url, "timeout_seconds": 20}))
    assert (await asyncio.wait_for(call(gateway, "slow__go"), 10))["content"] == TEXT["content"]


async def test_definitions_that_no_client_could_use_are_left_out(start_gateway, raw):
    deep: dict = {"type": "object"}
    for _ in range(40):
        deep = {"type": "object", "properties": {"a": deep}}
    tools = [
        {"name": "good", "inputSchema": {"type": "object", "properties": {"$ref": {"type": "string"}}}},
        {"name": "bad name", "inputSchema": SCHEMA},
        {"name": "no-schema"},
        {"name": "string-schema", "inputSchema": "object"},
        {"name": "list-schema", "inputSchema": {"type": "array"}},
        {"name": "huge", "inputSchema": SCHEMA, "description": "x" * 70_000},
        {"name": "deep", "inputSchema": deep},
        {"name": "far", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://x.example/s.json"}}}},
        {"name": "words", "inputSchema": SCHEMA, "description": {"not": "a text"}},
        {"name": "header", "inputSchema": {"type": "object", "properties": {
            "a": {"type": "array", "x-mcp-header": "A"}}}},
        {"name": "items", "inputSchema": {"type": "object", "properties": {
            "a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}}},
        {"name": "good", "inputSchema": SCHEMA, "description": "again"},
        17,
    ]  # fmt: skip
    server = await raw(fine, tools)
    gateway = await start_gateway(with_servers({"name": "odd", "url": server.url}))
    _, _, answer = await post(gateway, "tools/list")
    assert [tool["name"] for tool in answer["result"]["tools"]] == ["odd__good"]
    [state] = gateway.gateway.mcp.states()
    assert state["left_out"] == 12


async def test_a_list_without_end_is_bounded(start_gateway, raw):
    async def pages(one: Call) -> None:
        number = int(one.message["params"].get("cursor") or "0")
        tools = [{"name": f"t{number}-{each}", "inputSchema": SCHEMA} for each in range(50)]
        one.result({"tools": tools, "nextCursor": str(number + 1)})

    server = await raw(fine, [])
    server.on_list = pages
    gateway = await start_gateway(with_servers({"name": "odd", "url": server.url}))
    _, _, answer = await post(gateway, "tools/list")
    assert len(answer["result"]["tools"]) == 1000


async def test_a_result_that_breaks_its_own_output_schema_is_not_passed_on(start_gateway, raw):
    output = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    results = iter(
        [
            {**TEXT, "structuredContent": {"n": 1}},
            {**TEXT, "structuredContent": {"n": "1"}},
            {**TEXT, "structuredContent": {}},
            {**TEXT, "structuredContent": [1]},
            TEXT,
            {**TEXT, "isError": True},
        ]
    )

    async def answer(one: Call) -> None:
        one.result(next(results))

    server = await raw(answer, [{"name": "go", "inputSchema": SCHEMA, "outputSchema": output}])
    gateway = await start_gateway(with_servers({"name": "liar", "url": server.url}))
    answers = [await call(gateway, "liar__go") for _ in range(6)]
    assert answers[0]["structuredContent"] == {"n": 1}
    assert {failure(one)[0] for one in answers[1:5]} == {"tool_schema_broken"}
    assert answers[5]["content"] == TEXT["content"], "a tool's own error has no structured result"


async def test_a_servers_own_error_is_told_in_its_words(start_gateway, raw):
    async def answer(one: Call) -> None:
        one.error(-32603, "the database is being rebuilt at http://10.0.0.9:5432/tickets from /srv/db/backup")

    server = await raw(answer)
    gateway = await start_gateway(with_servers({"name": "db", "url": server.url, "price_usd": "1"}))
    code, text = failure(await call(gateway, "db__go"))
    assert code == "mcp_server_error" and "the database is being rebuilt at [address] from [path]" in text
    [record] = tool_calls(gateway)
    assert (record.outcome, record.cost_pico_usd, record.cost_basis) == ("error", 0, "free")


@pytest.mark.parametrize("code", [-32602, -32021])
async def test_a_servers_error_about_the_request_stays_an_error_of_the_protocol(start_gateway, raw, code):
    async def answer(one: Call) -> None:
        one.error(code, "sampling is needed", 400, {"requiredCapabilities": {"sampling": {}}})

    server = await raw(answer)
    gateway = await start_gateway(with_servers({"name": "db", "url": server.url, "price_usd": "1"}))
    status, _, found = await post(gateway, "tools/call", {"name": "db__go", "arguments": {}})
    assert (status, found["error"]["code"]) == (400, code)
    assert found["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}
    [record] = tool_calls(gateway)
    assert (record.outcome, record.error_code, record.cost_basis) == ("error", "mcp_server_error", "free")


async def test_more_calls_than_a_server_may_have_are_refused_at_once(start_gateway, raw):
    go_on = asyncio.Event()

    async def wait(one: Call) -> None:
        await go_on.wait()
        one.result(TEXT)

    server = await raw(wait)
    gateway = await start_gateway(with_servers({"name": "narrow", "url": server.url, "max_concurrent": 2}))
    calls = [asyncio.create_task(call(gateway, "narrow__go")) for _ in range(5)]
    done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 3:
        more, _ = await asyncio.wait([one for one in calls if one not in done], return_when=asyncio.FIRST_COMPLETED)
        done |= more
    assert {failure(one.result())[0] for one in done} == {"upstream_overloaded"}
    go_on.set()
    results = await asyncio.gather(*calls)
    assert sum(not one.get("isError") for one in results) == 2


async def test_a_client_that_leaves_ends_the_call_at_the_server(start_gateway, raw, eventually):
    left = asyncio.Event()

    async def wait(one: Call) -> None:
        try:
            await asyncio.wait_for(one.writer.wait_closed(), 20)
        except (ConnectionError, TimeoutError):
            pass
        left.set()

    server = await raw(wait)
    gateway = await start_gateway(with_servers({"name": "slow", "url": server.url, "price_usd": "0.01"}))
    asking = asyncio.create_task(call(gateway, "slow__go"))
    await eventually(lambda: any(one.message.get("method") == "tools/call" for one in server.calls))
    asking.cancel()
    await eventually(lambda: len(tool_calls(gateway)) == 1)
    [record] = tool_calls(gateway)
    assert (record.outcome, record.error_code, record.cost_pico_usd) == (
        "cancelled",
        "client_closed_request",
        10_000_000_000,
    )
