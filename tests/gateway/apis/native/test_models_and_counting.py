"""What agents ask beside answers: the list of models in their API's shape, counts of tokens, and paths that are not."""

from typing import Any

import anthropic
import openai
import pytest

from tests.gateway.apis.native import provider


@pytest.fixture
async def gateway(start_gateway, kit):
    return await start_gateway(kit.configuration(*((name, [kit.scripted()]) for name in ("a", "b", "c/d"))))


async def test_anthropics_sdk_lists_models_page_by_page(gateway, sdk):
    client = sdk(gateway)
    listed = [model async for model in await client.models.list(limit=2)]
    assert [model.id for model in listed] == ["a", "b", "c/d"]
    assert {model.type for model in listed} == {"model"}
    found = await client.models.retrieve("c/d")
    assert (found.id, found.display_name) == ("c/d", "c/d")
    back = await client.models.list(limit=1, before_id="c/d")
    assert [model.id for model in back.data] == ["b"] and back.has_more
    with pytest.raises(anthropic.NotFoundError) as raised:
        await client.models.retrieve("nothing")
    assert raised.value.body["error"]["type"] == "not_found_error"


async def test_openais_sdk_lists_models_as_before(gateway):
    client = gateway.sdk()
    page = await client.models.with_raw_response.list()
    assert [model.id for model in page.parse().data] == ["a", "b", "c/d"]
    assert page.headers["x-request-id"]
    assert (await client.models.retrieve("c/d")).object == "model"


async def test_a_page_that_there_cannot_be_is_refused(gateway, sdk):
    with pytest.raises(anthropic.BadRequestError, match="limit is '0'"):
        await sdk(gateway).models.list(limit=0)


async def test_input_tokens_of_a_response_are_counted_with_what_it_continues(gateway):
    client = gateway.sdk()
    first = await client.responses.create(model="a", input="one two three")
    alone = await client.responses.input_tokens.count(model="a", input="four five")
    after = await client.responses.input_tokens.count(model="a", input="four five", previous_response_id=first.id)
    assert alone.object == "response.input_tokens"
    assert (alone.input_tokens, after.input_tokens - alone.input_tokens >= 3) == (2, True)
    with pytest.raises(openai.NotFoundError):
        await client.responses.input_tokens.count(model="a", input="x", previous_response_id="resp_" + "0" * 32)


async def test_counts_of_a_model_that_passes_through_are_estimates_of_the_whole_body(start_gateway, kit, upstream, sdk):
    upstream.always(upstream.whole(provider.message({"type": "text", "text": "ok"})))
    target = kit.http_target(upstream.url) | {"settings": {"apis": ["messages"]}}
    gateway = await start_gateway(kit.configuration(("claude", [target])))
    search: Any = {"type": "web_search_20250305", "name": "web_search"}
    counted = await sdk(gateway).messages.with_raw_response.count_tokens(
        model="claude", messages=[{"role": "user", "content": "one two three"}], tools=[search]
    )
    assert counted.headers["x-tollkeeper-count-method"] == "estimate"
    assert (await counted.parse()).input_tokens > 20
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/v1/messages/batch", "POST /v1/messages/batches"),
        ("/v1/responses/expand", "POST /v1/responses/input_tokens"),
        ("/v1/nothing", "POST /v1/chat/completions"),
    ],
)
async def test_a_path_that_is_not_served_names_what_is_in_its_apis_shape(gateway, kit, path, named):
    answer = await gateway.ask(kit.request(path=path))
    assert answer.status == 404 and named in answer.json["error"]["message"]
    assert ("type" in answer.json) == path.startswith("/v1/messages")
