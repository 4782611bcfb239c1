"""Fields that no chat can carry: refused, or dropped and named, as a target's settings say."""

import json
from typing import Any

import pytest

MODEL = "m"
MESSAGE: dict[str, Any] = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "a b"}]}
RESPONSE: dict[str, Any] = {"model": MODEL, "input": "a b", "store": False}
WEATHER = {"name": "weather", "input_schema": {"type": "object"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.fixture
def start(start_gateway, kit, upstream):
    """Start a gateway whose targets speak chats, each with these settings."""

    async def start(*settings: dict[str, Any]) -> Any:
        upstream.always(upstream.whole(upstream.completion("ok")))
        targets = [
            kit.http_target(upstream.url, f"u{number}") | {"settings": one} for number, one in enumerate(settings)
        ]
        return await start_gateway(kit.configuration((MODEL, targets)))

    return start


async def ask(gateway, kit, path: str, body: dict[str, Any]) -> Any:
    return await gateway.ask(kit.request(json.dumps(body).encode(), path=path))


@pytest.mark.parametrize(
    ("path", "body", "dropped"),
    [
        ("/v1/messages", MESSAGE | {"context_management": {"edits": []}}, "context_management"),
        ("/v1/responses", RESPONSE | {"client_metadata": {"a": "b"}}, "client_metadata"),
        (
            "/v1/responses",
            RESPONSE | {"tools": [{"type": "web_search", "external_web_access": False}]},
            "tools[0]",
        ),
    ],
)
async def test_bookkeeping_is_dropped_everywhere_and_named(start, upstream, kit, path, body, dropped):
    gateway = await start({})
    answer = await ask(gateway, kit, path, body)
    assert (answer.status, answer.headers["x-tollkeeper-dropped"]) == (200, dropped)


async def test_nothing_is_named_if_nothing_was_dropped(start, kit):
    gateway = await start({})
    answer = await ask(gateway, kit, "/v1/messages", MESSAGE)
    assert answer.status == 200 and "x-tollkeeper-dropped" not in answer.headers


@pytest.mark.parametrize("settings", [{}, {"unknown_fields": "refuse"}])
async def test_what_could_change_the_answer_is_refused_unless_a_target_says_otherwise(start, upstream, kit, settings):
    gateway = await start(settings)
    for path, body in (("/v1/messages", MESSAGE), ("/v1/responses", RESPONSE)):
        answer = await ask(gateway, kit, path, body | {"brand_new": 1})
        assert answer.status == 400 and "brand_new" in answer.json["error"]["message"]
    assert upstream.requests == []


async def test_a_target_may_have_unknown_fields_and_tools_dropped(start, upstream, kit):
    gateway = await start({"unknown_fields": "drop"})
    more = {"brand_new": 1, "mcp_servers": [{"url": "x"}], "tools": [SEARCH, WEATHER, SEARCH]}
    answer = await ask(gateway, kit, "/v1/messages", MESSAGE | more)
    assert answer.status == 200
    assert set(answer.headers["x-tollkeeper-dropped"].split(",")) == {
        "brand_new",
        "mcp_servers",
        "tools[0]",
        "tools[2]",
    }
    [tool] = upstream.requests[0].json["tools"]
    assert tool["function"]["name"] == "weather"


async def test_a_wrong_value_is_refused_all_the_same(start, upstream, kit):
    gateway = await start({"unknown_fields": "drop"})
    answer = await ask(gateway, kit, "/v1/messages", MESSAGE | {"temperature": 7, "brand_new": 1})
    assert answer.status == 400 and "temperature" in answer.json["error"]["message"]
    assert upstream.requests == []


async def test_of_two_targets_the_one_that_lets_it_be_dropped_answers(start, upstream, kit):
    gateway = await start({"unknown_fields": "refuse"}, {"unknown_fields": "drop"})
    for _ in range(4):
        answer = await ask(gateway, kit, "/v1/responses", RESPONSE | {"brand_new": 1})
        assert (answer.status, answer.headers["x-tollkeeper-dropped"]) == (200, "brand_new")
