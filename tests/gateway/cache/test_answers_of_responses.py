"""Answers of the Responses API are kept and given again, each as a response of its own that can be continued."""

import json

import pytest

from backends.objects.responses import ResponseStore
from contracts.errors import ObjectsUnavailable
from tests.gateway.cache.word_embedder import WordEmbedder

ASKED = "How do I return a parcel?"
ALIKE = "how do i return a parcel"  # the same words
FAR = "Which colours does the sky have?"
OTHER_KEY = "tk-" + "B" * 43
SIBLING_KEY = "tk-" + "C" * 43


@pytest.fixture
async def gateway(start_gateway, kit, upstream):
    upstream.always(upstream.whole(upstream.completion("Hi there", prompt=1000, output=500)))
    config = kit.configuration(("m", [kit.http_target(upstream.url)]))
    config["models"][0]["cache"] = {"mode": "semantic", "similarity": 0.9}
    config["keys"].append({"key": OTHER_KEY, "tenant": "globex", "id": "key_2"})
    config["keys"].append({"key": SIBLING_KEY, "tenant": "acme", "team": "core", "project": "gemini", "id": "key_3"})
    gateway = await start_gateway(config)
    gateway.gateway._answers._embedder = WordEmbedder()
    gateway.gateway._answers._known_meanings = None
    return gateway


async def ask(gateway, kit, text=ASKED, key=None, **fields):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    said = await gateway.ask(
        kit.request({"model": "m", "input": text, **fields}, path="/v1/responses", headers=headers)
    )
    assert said.status == 200, said.body
    return said


async def test_a_hit_is_a_response_of_its_own_that_is_read_back_and_continued(gateway, kit, upstream):
    first, again = await ask(gateway, kit), await ask(gateway, kit)
    assert [one.headers["x-cache"] for one in (first, again)] == ["miss", "hit"]
    made, other = json.loads(first.body), json.loads(again.body)
    assert other["id"] != made["id"]
    assert other["id"] == "resp_" + again.headers["x-request-id"].replace("-", "")
    assert again.body.replace(other["id"][5:].encode(), made["id"][5:].encode()) == first.body
    responses = gateway.sdk().responses
    assert (await responses.retrieve(other["id"])).output[0].id == other["output"][0]["id"]
    await responses.delete(made["id"])
    listed = await responses.input_items.list(other["id"])
    assert listed.data[0].content[0].text == ASKED
    await responses.create(model="m", input="And a letter?", previous_response_id=other["id"])
    assert [one["content"] for one in upstream.requests[-1].json["messages"]] == [ASKED, "Hi there", "And a letter?"]
    assert [record.cache for record in gateway.requests()] == ["miss", "hit", "miss"]


async def test_a_stream_is_given_again_with_ids_of_its_own_and_stored(gateway, kit, upstream):
    upstream.then(upstream.streamed(upstream.chunk("Hi"), upstream.chunk(finish="stop"), upstream.usage(3, 1)))
    first, again = [await ask(gateway, kit, stream=True) for _ in range(2)]
    assert again.headers["x-cache"] == "hit"
    events = [json.loads(line[6:]) for line in again.body.decode().splitlines() if line.startswith("data: ")]
    ended = events[-1]["response"]
    assert events[-1]["type"] == "response.completed" and ended["id"].encode() not in first.body
    assert {event["response"]["id"] for event in events if "response" in event} == {ended["id"]}
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert (await gateway.sdk().responses.retrieve(ended["id"])).output_text == "Hi"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_hit_that_cannot_be_stored_says_so_and_is_good(gateway, kit, upstream, monkeypatch, stream):
    upstream.then(upstream.streamed(upstream.chunk("Hi"), upstream.chunk(finish="stop"), upstream.usage(3, 1))
                  if stream else upstream.whole(upstream.completion("Hi")))  # fmt: skip

    async def full(self, response):
        raise ObjectsUnavailable("the disk is full")

    async def asked():
        said = await ask(gateway, kit, stream=stream)
        last = said.body.decode().strip().splitlines()[-1].removeprefix("data: ") if stream else said.body
        found = json.loads(last)
        return said.headers["x-cache"], found["response"] if stream else found

    assert (await asked())[0] == "miss"
    with monkeypatch.context() as patched:
        patched.setattr(ResponseStore, "add", full)
        outcome, said = await asked()
    assert (outcome, said["store"], said["tollkeeper"]["not_stored"]["message"]) == ("hit", False, "the disk is full")
    assert (await asked())[1]["store"] is True  # what could not be stored once is not a part of what is kept


async def test_what_could_not_be_stored_is_not_kept_either(gateway, kit, monkeypatch):
    async def full(self, response):
        raise ObjectsUnavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(ResponseStore, "add", full)
        await ask(gateway, kit)
    assert (await ask(gateway, kit)).headers["x-cache"] == "miss"


@pytest.mark.parametrize(
    "more", [{"store": False}, {"metadata": {"a": "b"}}, {"user": "u"}, {"instructions": "be brief"}]
)
async def test_what_a_response_repeats_makes_another_request(gateway, kit, more):
    await ask(gateway, kit)
    said = await ask(gateway, kit, **more)
    assert said.headers["x-cache"] == "miss"
    assert (await ask(gateway, kit, **more)).headers["x-cache"] == "hit"


async def test_the_words_of_the_last_message_alone_may_mean_the_same(gateway, kit):
    await ask(gateway, kit)
    alike = await ask(gateway, kit, ALIKE)
    assert alike.headers["x-cache"] == "semantic-hit"
    assert (await ask(gateway, kit, FAR)).headers["x-cache"] == "miss"
    said = {"type": "input_text", "text": ASKED}
    items = [{"role": "user", "content": [said]}]
    assert (await ask(gateway, kit, items)).headers["x-cache"] == "miss"
    said["text"] = ALIKE
    assert (await ask(gateway, kit, items)).headers["x-cache"] == "semantic-hit"
    called = {"type": "function_call_output", "call_id": "c", "output": ASKED}
    before = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    for output in (ASKED, ALIKE):
        assert (await ask(gateway, kit, [before, {**called, "output": output}])).headers["x-cache"] == "miss"


async def test_neither_another_tenant_nor_another_project_gets_at_what_is_not_its_own(gateway, kit):
    first = json.loads((await ask(gateway, kit)).body)["id"]
    assert (await ask(gateway, kit, key=OTHER_KEY)).headers["x-cache"] == "miss"
    assert (await ask(gateway, kit, ALIKE, key=OTHER_KEY)).headers["x-cache"] == "semantic-hit"  # its own
    hit = await ask(gateway, kit, key=SIBLING_KEY)  # of the same tenant, as the policy says
    assert hit.headers["x-cache"] == "hit"
    mine = gateway.sdk(SIBLING_KEY).responses
    assert (await mine.retrieve(json.loads(hit.body)["id"])).output_text == "Hi there"
    refused = await gateway.ask(
        kit.request(
            {"model": "m", "input": "x", "previous_response_id": first},
            path="/v1/responses",
            headers={"Authorization": f"Bearer {SIBLING_KEY}"},
        )
    )
    assert refused.status == 404
