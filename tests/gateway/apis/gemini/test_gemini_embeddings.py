"""embedContent and batchEmbedContents of Google's API: at /v1/embeddings, and at targets that speak the API."""

import base64
import json
import struct
from typing import Any

import pytest

from contracts.metering.usage import Usage

MODEL = "embedder"
ONE: dict[str, Any] = {"content": {"parts": [{"text": "one"}, {"text": "two"}]}}
IMAGE = {"mimeType": "image/png", "data": "AA=="}
BATCH: dict[str, Any] = {"requests": [ONE, {"content": {"parts": [{"text": "three"}]}}]}


def vectors(*given: list[float], tokens: int = 7) -> dict[str, Any]:
    data = [{"object": "embedding", "index": place, "embedding": one} for place, one in enumerate(given)]
    return {"data": data[::-1], "model": "served", "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


async def ask(gateway: Any, kit: Any, verb: str, body: Any, version: str = "v1beta") -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": "", "x-goog-api-key": kit.KEY}
    return await gateway.ask(kit.request(data, headers, path=f"/{version}/models/{MODEL}:{verb}"))


@pytest.fixture
async def translating(start_gateway, kit, upstream):
    return await start_gateway(kit.configuration((MODEL, [kit.http_target(upstream.url)])))


@pytest.fixture
def native(start_gateway, kit, upstream):
    async def start(**more: Any) -> Any:
        target = kit.http_target(upstream.url, **more)
        target["settings"] = {"apis": ["gemini"]}
        return await start_gateway(kit.configuration((MODEL, [target])))

    return start


async def test_googles_sdk_gets_the_vectors_of_a_server_of_openais_shape(translating, upstream, kit):
    genai = pytest.importorskip("google.genai", reason="google-genai cannot be installed beside the other SDKs")
    upstream.always(upstream.whole(vectors([0.5, -1.0], [2.0, 3.0])))
    client = genai.Client(api_key=kit.KEY, http_options={"base_url": translating.base_url.removesuffix("/v1")})
    answer = await client.aio.models.embed_content(
        model=MODEL, contents=["one", "two"], config={"output_dimensionality": 2}
    )
    assert [one.values for one in answer.embeddings or []] == [[0.5, -1.0], [2.0, 3.0]]
    [sent] = upstream.requests
    assert sent.line == "POST /v1/embeddings HTTP/1.1"
    assert sent.json == {"model": MODEL, "input": ["one", "two"], "encoding_format": "float", "dimensions": 2}
    [record] = translating.requests()
    assert (record.api, record.operation, record.usage) == ("generate_content", "embeddings", Usage(input_text=7))
    assert record.cost_pico_usd == 7_000_000 and record.model_version == "served"


@pytest.mark.parametrize("version", ["v1", "v1beta"])
async def test_one_content_is_one_text_and_one_vector(translating, upstream, kit, version):
    upstream.always(upstream.whole(vectors([0.5])))
    answer = await ask(translating, kit, "embedContent", {"model": f"models/{MODEL}", **ONE}, version)
    assert (answer.status, answer.json) == (200, {"embedding": {"values": [0.5]}})
    assert upstream.requests[0].json["input"] == "one\ntwo"


async def test_names_may_be_in_snake_case(translating, upstream, kit):
    upstream.always(upstream.whole(vectors([0.5])))
    answer = await ask(translating, kit, "embedContent", {**ONE, "output_dimensionality": 1})
    assert answer.status == 200 and upstream.requests[0].json["dimensions"] == 1


@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [
        ("embedContent", {**ONE, "taskType": "RETRIEVAL_QUERY"}, "taskType"),
        ("embedContent", {**ONE, "title": "t"}, "title"),
        ("embedContent", {**ONE, "embedContentConfig": {"taskType": "CLUSTERING"}}, "taskType"),
        ("embedContent", {"content": {"parts": []}}, "content"),
        ("embedContent", {"content": {"parts": [{"inlineData": IMAGE}]}}, "content.parts[0]"),
        ("embedContent", {**ONE, "outputDimensionality": 0}, "outputDimensionality"),
        ("embedContent", {**ONE, "brandNew": 1}, "brandNew"),
        ("batchEmbedContents", {"requests": []}, "requests"),
        ("batchEmbedContents", {"requests": [ONE] * 2049}, "requests"),
        ("batchEmbedContents", {"requests": [ONE, {**ONE, "outputDimensionality": 2}]}, "requests"),
    ],
)
async def test_what_embeddings_cannot_carry_is_refused_by_name(translating, upstream, kit, verb, body, field):
    answer = await ask(translating, kit, verb, body)
    error = answer.json["error"]
    assert (answer.status, error["status"]) == (400, "INVALID_ARGUMENT")
    assert error["details"][0]["metadata"] == {"field": field}
    assert not upstream.requests


async def test_a_target_that_lets_fields_be_dropped_is_asked_without_them(start_gateway, kit, upstream):
    target = kit.http_target(upstream.url)
    target["settings"] = {"unknown_fields": "drop"}
    gateway = await start_gateway(kit.configuration((MODEL, [target])))
    upstream.always(upstream.whole(vectors([1.0])))
    assert (await ask(gateway, kit, "embedContent", {**ONE, "taskType": "RETRIEVAL_QUERY"})).status == 200
    assert set(upstream.requests[0].json) == {"model", "input", "encoding_format"}


async def test_vectors_that_are_no_numbers_are_the_servers_fault(translating, upstream, kit):
    text = base64.b64encode(struct.pack("<f", 1.0)).decode()
    upstream.always(upstream.whole({"data": [{"embedding": text}], "usage": None}))
    answer = await ask(translating, kit, "embedContent", ONE)
    assert (answer.status, answer.json["error"]["details"][0]["reason"]) == (502, "upstream_broken")


async def test_a_target_of_the_api_gets_the_bytes_and_so_does_the_client(native, upstream, kit):
    whole = b'{ "embeddings":[{"values":[1,2]}], "usageMetadata": {"promptTokenCount": 9}, "new": 1 }'
    upstream.always(upstream.whole(whole))
    gateway = await native()
    body = b'{ "requests" : [{"model":"models/embedder","content":{"parts":[{"text":"x"}]},"brandNew":{}}] }'
    answer = await ask(gateway, kit, "batchEmbedContents", body)
    assert (answer.status, answer.body) == (200, whole)
    [sent] = upstream.requests
    assert (sent.body, sent.line) == (body, f"POST /v1/models/{MODEL}:batchEmbedContents HTTP/1.1")
    [record] = gateway.requests()
    assert (record.usage, record.count_method) == (Usage(input_text=9), "reported")


async def test_a_renamed_model_is_renamed_wherever_it_stands(native, upstream, kit):
    upstream.always(upstream.whole({"embedding": {"values": [1]}}))
    gateway = await native(model="gemini-embedding-001")
    one = {"model": f"models/{MODEL}", "taskType": "CLUSTERING", **ONE}
    assert (await ask(gateway, kit, "embedContent", one)).status == 200
    assert (await ask(gateway, kit, "batchEmbedContents", {"requests": [one]})).status == 200
    first, second = upstream.requests
    assert first.json == {**one, "model": "models/gemini-embedding-001"}
    assert second.json == {"requests": [{**one, "model": "models/gemini-embedding-001"}]}
    assert first.line.startswith("POST /v1/models/gemini-embedding-001:embedContent ")
    assert {record.count_method for record in gateway.requests()} == {"estimate"}, "no usage was told"


async def test_an_answer_of_the_api_that_is_none_is_its_servers_fault(native, upstream, kit):
    upstream.always(upstream.whole({"candidates": []}))
    assert (await ask(await native(), kit, "embedContent", ONE)).status == 502


async def test_a_key_without_the_endpoint_may_not(start_gateway, kit, upstream):
    key = {"key": kit.KEY, "tenant": "acme", "id": "key_1", "endpoints": ["embeddings"]}
    gateway = await start_gateway(kit.configuration((MODEL, [kit.http_target(upstream.url)]), keys=[key]))
    answer = await ask(gateway, kit, "embedContent", ONE)
    assert (answer.status, answer.json["error"]["status"]) == (403, "PERMISSION_DENIED")
