"""Reranking and scoring over HTTP: vLLM's, Jina's and Cohere's shapes, from engine hosts and from servers."""

import json

import pytest

from tests.backends.llm.engine_fake import FakeHost, builtin_hello

MODEL = "ranker"
DOCUMENTS = ["one two three four", {"text": "one"}, "one two"]


def asked(gateway, path="/v1/rerank", **fields):
    body = {"model": MODEL, "query": "one", "documents": DOCUMENTS, **fields}
    return gateway.ask(gateway.request(body, path=path))


def scored(gateway, path="/v1/score", **fields):
    body = {"model": MODEL, "text_1": "one", "text_2": ["one", "one two"], **fields}
    return gateway.ask(gateway.request(body, path=path))


@pytest.fixture
async def engine(start_gateway, kit, tmp_path, eventually):
    host = await FakeHost(tmp_path / "h.sock", models=[builtin_hello(MODEL, kind="embed")]).start()
    target = {"name": "e1", "kind": "engine", "url": host.url}
    gateway = await start_gateway(kit.configuration((MODEL, [target])))
    await eventually(lambda: all(one["state"] == "ready" for one in gateway.gateway.health()["engines"].values()))
    yield gateway
    await host.stop()


@pytest.fixture
async def server(start_gateway, kit, upstream):
    return await start_gateway(kit.configuration((MODEL, [kit.http_target(upstream.url)])))


# by a model that embeds


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
async def test_documents_come_back_best_first_with_what_they_cost(engine, path):
    answer = await asked(engine, path)
    assert answer.status == 200
    results = answer.json["results"]
    assert [one["index"] for one in results] == [1, 2, 0] and results[0]["relevance_score"] == 1.0
    assert [one["document"] for one in results] == [{"text": "one"}, {"text": "one two"}, {"text": DOCUMENTS[0]}]
    scores = [one["relevance_score"] for one in results]
    assert scores == sorted(scores, reverse=True)
    [record] = engine.requests()
    tokens = record.usage.input_text
    assert tokens == 4 + 1 + 2  # the query is one of the documents
    assert answer.json["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert answer.json["meta"]["billed_units"] == answer.json["meta"]["tokens"] == {"input_tokens": tokens}
    assert answer.json["id"].startswith("rerank-") and answer.json["model"] == MODEL
    assert (record.api, record.operation, record.outcome, record.count_method) == ("rerank", "rerank", "ok", "exact")
    assert record.cost_pico_usd == tokens * 1_000_000 and record.usage.output_tokens is None


async def test_as_many_come_back_as_are_asked_for_and_bare_where_that_is_said(engine):
    answer = await asked(engine, top_n=1, return_documents=False)
    assert answer.json["results"] == [{"index": 1, "relevance_score": 1.0}]


async def test_coheres_second_version_sends_no_document_back_unless_asked(engine):
    bare = await asked(engine, "/v2/rerank", max_tokens_per_doc=4096)
    assert all(set(one) == {"index", "relevance_score"} for one in bare.json["results"])
    told = await asked(engine, "/v2/rerank", return_documents=True)
    assert all("document" in one for one in told.json["results"])


@pytest.mark.parametrize("path", ["/v1/score", "/score"])
async def test_scores_come_in_the_order_of_their_texts(engine, path):
    answer = await scored(engine, path)
    assert [one["index"] for one in answer.json["data"]] == [0, 1]
    assert answer.json["data"][0] == {"index": 0, "object": "score", "score": 1.0}
    assert 0 < answer.json["data"][1]["score"] < 1 and answer.json["object"] == "list"
    [record] = engine.requests()
    assert (record.api, record.operation, record.usage.input_text) == ("score", "score", 3)
    assert answer.json["usage"] == {"prompt_tokens": 3, "total_tokens": 3}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"documents": []}, "documents"),
        ({"documents": "one"}, "documents"),
        ({"query": None}, "query"),
        ({"top_n": -1}, "top_n"),
        ({"rank_fields": ["a"]}, "rank_fields"),
        ({"documents": [{"image": "x"}]}, "documents"),
    ],
)
async def test_what_cannot_be_reranked_is_refused_by_name_and_costs_nothing(engine, fields, param):
    answer = await asked(engine, **fields)
    assert (answer.status, answer.error["param"]) == (400, param)
    [record] = engine.requests()
    assert not record.usage.total_tokens and not record.cost_pico_usd


async def test_a_model_that_only_generates_is_said_to(start_gateway, kit):
    gateway = await start_gateway(kit.configuration((MODEL, [kit.scripted()])))
    answer = await asked(gateway)
    assert (answer.status, answer.error["param"]) == (400, "model")


# by a server


REPLY = {
    "id": "x",
    "model": "served",
    "usage": {"total_tokens": 11},
    "results": [{"index": 1, "document": {"text": "one"}, "relevance_score": 0.9}],
}


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
async def test_a_servers_reply_passes_byte_for_byte_and_is_paid(server, upstream, path):
    sent = json.dumps(REPLY).encode()
    upstream.always(upstream.whole(sent))
    answer = await asked(server, path, top_n=1)
    assert (answer.status, answer.body) == (200, sent)
    assert upstream.requests[0].line == "POST /v1/rerank HTTP/1.1"
    assert upstream.requests[0].json == {"model": MODEL, "query": "one", "documents": DOCUMENTS, "top_n": 1}
    [record] = server.requests()
    assert (record.usage.input_text, record.count_method, record.cost_pico_usd) == (11, "reported", 11_000_000)


async def test_scores_of_a_server_pass_too(server, upstream):
    sent = json.dumps({"data": [{"index": 0, "object": "score", "score": 1}], "usage": {"prompt_tokens": 4}}).encode()
    upstream.always(upstream.whole(sent))
    answer = await scored(server)
    assert (answer.body, upstream.requests[0].line) == (sent, "POST /v1/score HTTP/1.1")
    assert server.requests()[0].usage.input_text == 4


async def test_a_search_that_is_billed_by_the_search_has_no_reported_tokens(server, upstream):
    upstream.always(upstream.whole({"results": [], "meta": {"billed_units": {"search_units": 1}}}))
    assert (await asked(server)).status == 200
    assert server.requests()[0].count_method == "estimate"


async def test_a_server_may_have_another_path(start_gateway, kit, upstream):
    target = kit.http_target(upstream.url)
    target["settings"]["paths"] = {"rerank": "/reranking", "score": "/similarity"}
    gateway = await start_gateway(kit.configuration((MODEL, [target])))
    upstream.always(upstream.whole({**REPLY, "data": []}))
    await asked(gateway)
    await scored(gateway)
    assert [one.line.split(" ")[1] for one in upstream.requests] == ["/v1/reranking", "/v1/similarity"]


@pytest.mark.parametrize("sent", [{"data": []}, {"results": None}, [], b"nothing", {"error": {"message": "no model"}}])
async def test_what_is_no_reply_is_the_servers_fault(server, upstream, sent):
    upstream.always(upstream.whole(sent))
    answer = await asked(server)
    assert (answer.status, server.requests()[0].outcome) == (502, "error")


async def test_a_key_is_held_to_its_endpoints(start_gateway, kit, upstream):
    config = kit.configuration((MODEL, [kit.http_target(upstream.url)]))
    config["keys"][0]["endpoints"] = ["rerank"]
    gateway = await start_gateway(config)
    upstream.always(upstream.whole(REPLY))
    assert (await asked(gateway)).status == 200
    refused = await scored(gateway)
    assert refused.status == 403 and "score" in refused.error["message"]


async def test_input_tokens_count_against_a_limit(start_gateway, kit, upstream):
    limit = {"tenant": "acme", "level": "key", "subject": "key_1", "metric": "input_tokens", "window": "minute"}
    config = kit.configuration((MODEL, [kit.http_target(upstream.url)]), limits=[{**limit, "amount": 1000}])
    gateway = await start_gateway(config)
    upstream.always(upstream.whole({**REPLY, "usage": {"total_tokens": 900}}))
    assert (await asked(gateway)).status == 200
    answer = await asked(gateway, query="one " * 600)
    assert answer.status == 429 and "input" in answer.error["message"]
