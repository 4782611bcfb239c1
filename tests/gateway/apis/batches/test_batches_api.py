"""OpenAI's Batches API with OpenAI's SDK: lines go in, answers come out, and every one is paid for at batch prices."""

import asyncio
import time
from uuid import UUID

import openai
import pytest

from tests.gateway.apis.batches.batch_kit import CHAT, chat_line, create, ended, file_of, results

OTHER, WIDE = "tk-" + "B" * 43, "tk-" + "D" * 43
HALVES = [
    {
        "model": "scripted-1",
        "version": "t/1",
        "usd_per_mtok": {"input_text": "1", "output_text": "2"},
        "batch_usd_per_mtok": {"input_text": "0.5", "output_text": "1"},
    }
]


@pytest.fixture
def keys(kit):
    mine = {"key": kit.KEY, "tenant": "acme", "team": "core", "project": "apollo", "id": "key_1"}
    return [mine, {"key": OTHER, "tenant": "globex", "id": "key_2"}, {"key": WIDE, "tenant": "acme", "id": "key_4"}]


@pytest.fixture
async def gateway(start_gateway, kit, keys):
    return await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), prices=HALVES, keys=keys))


async def error_of(call) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as refusal:
        await call
    return refusal.value


async def test_every_line_is_answered_and_recorded_once_at_batch_prices(gateway):
    client = gateway.sdk()
    lines = [chat_line(f"r{number}", max_tokens=number % 4 + 1) for number in range(40)]
    headers = {"x-tollkeeper-tags": "job=night", "x-tollkeeper-priority": "interactive"}
    batch = await create(client, lines, headers=headers, metadata={"for": "test"})
    assert (batch.object, batch.endpoint, batch.completion_window) == ("batch", CHAT, "24h")
    assert batch.status in ("validating", "in_progress") and batch.expires_at == batch.created_at + 86_400
    done = await ended(client, batch)
    assert done.status == "completed" and done.metadata == {"for": "test"} and done.model == "scripted-1"
    counts = done.request_counts
    assert (counts.total, counts.completed, counts.failed) == (40, 40, 0)
    assert done.error_file_id is None and done.errors is None
    moments = (done.created_at, done.in_progress_at, done.finalizing_at, done.completed_at)
    assert list(moments) == sorted(moments) and done.failed_at is done.cancelled_at is done.expired_at is None

    answers = await results(client, done.output_file_id)
    assert list(answers) == [f"r{number}" for number in range(40)], "in the order of the lines"
    records = {str(UUID(bytes=record.request_id)): record for record in gateway.requests()}
    assert len(gateway.requests()) == len(records) == 40
    for number, answer in enumerate(answers.values()):
        response = answer["response"]
        assert answer["error"] is None and response["status_code"] == 200
        used = response["body"]["usage"]
        assert (used["prompt_tokens"], used["completion_tokens"]) == (3, number % 4 + 1)
        record = records[response["request_id"]]
        assert (record.run_id, record.priority, record.who.tags) == (batch.id, "batch", {"job": "night"})
        assert (record.who.key_id, record.outcome, record.price_version) == ("key_1", "ok", "t/1#batch")
        assert record.cost_pico_usd == record.charged_pico_usd == 3 * 500_000 + (number % 4 + 1) * 1_000_000
    usage = done.usage
    assert usage is not None and usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert (usage.input_tokens, usage.output_tokens) == (120, 100)

    file = await client.files.retrieve(done.output_file_id)
    assert file.purpose == "batch_output" and file.filename == f"{batch.id}_output.jsonl"
    assert file.expires_at == file.created_at + 30 * 86_400


async def test_the_header_that_asks_for_the_batch_class_gets_no_batch_price(gateway):
    await gateway.chat(headers={"x-tollkeeper-priority": "batch"}, max_tokens=1)
    record = gateway.requests()[0]
    assert (record.priority, record.price_version, record.cost_pico_usd) == ("batch", "t/1", 5_000_000)


async def test_the_blocking_sdk_works_as_well(gateway):
    def use() -> None:
        with openai.OpenAI(base_url=gateway.base_url, api_key=gateway.sdk().api_key, max_retries=0) as client:
            file = client.files.create(file=file_of([chat_line("a")]), purpose="batch")
            batch = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
            while (batch := client.batches.retrieve(batch.id)).status != "completed":
                time.sleep(0.02)
            assert batch.output_file_id is not None
            assert '"custom_id":"a"' in client.files.content(batch.output_file_id).text
            assert [found.id for found in client.batches.list()] == [batch.id]

    await asyncio.wait_for(asyncio.to_thread(use), 20)


async def test_a_line_that_is_refused_stands_in_the_error_file_and_holds_no_other_up(gateway):
    client = gateway.sdk()
    lines = [chat_line("good", max_tokens=1), chat_line("bad", temperature=9), chat_line("worse", messages="no")]
    done = await ended(client, await create(client, lines))
    assert done.status == "completed"
    assert (done.request_counts.completed, done.request_counts.failed) == (1, 2)
    assert list(await results(client, done.output_file_id)) == ["good"]
    errors = await results(client, done.error_file_id)
    assert list(errors) == ["bad", "worse"]
    for error in errors.values():
        assert error["error"] is None and error["response"]["status_code"] == 400
        assert error["response"]["body"]["error"]["type"] == "invalid_request_error"
    assert errors["bad"]["response"]["body"]["error"]["param"] == "temperature"


async def test_a_file_with_faults_fails_as_a_whole_and_asks_no_model(gateway):
    client = gateway.sdk()
    lines: list[object] = [chat_line("a"), b"{", chat_line("a"), chat_line("b", url="/v1/embeddings")]
    done = await ended(client, await create(client, lines))
    assert done.status == "failed" and done.failed_at is not None and done.in_progress_at is None
    assert [(error.line, error.code) for error in done.errors.data] == [
        (2, "invalid_json_line"),
        (3, "duplicate_custom_id"),
        (4, "invalid_url"),
    ]
    assert done.output_file_id is done.error_file_id is None and done.request_counts.total == 0
    assert gateway.requests() == []


async def test_other_operations_are_batched_as_well(gateway):
    client = gateway.sdk()
    body = {"model": "scripted-1", "prompt": "one two", "max_tokens": 2}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}
    done = await ended(client, await create(client, [line], endpoint="/v1/completions"))
    answer = (await results(client, done.output_file_id))["a"]["response"]["body"]
    assert answer["object"] == "text_completion" and done.usage.output_tokens == 2
    body = {"model": "scripted-1", "input": "one two", "max_output_tokens": 16}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": body}
    done = await ended(client, await create(client, [line], endpoint="/v1/responses"))
    answer = (await results(client, done.output_file_id))["a"]["response"]["body"]
    assert answer["object"] == "response" and done.usage.output_tokens == answer["usage"]["output_tokens"] == 16
    message = {"model": "scripted-1", "max_tokens": 2, "messages": [{"role": "user", "content": "one two"}]}
    lines = [
        {"custom_id": "a", "method": "POST", "url": "/v1/messages", "body": message},
        {"custom_id": "b", "method": "POST", "url": "/v1/messages", "body": {**message, "max_tokens": 0}},
    ]
    done = await ended(client, await create(client, lines, endpoint="/v1/messages"))
    answer = (await results(client, done.output_file_id))["a"]["response"]["body"]
    assert answer["type"] == "message" and done.usage.output_tokens == answer["usage"]["output_tokens"] == 2
    refused = (await results(client, done.error_file_id))["b"]["response"]["body"]
    assert refused["type"] == "error", "an API's errors keep its own shape"


async def test_batches_are_listed_page_by_page_the_newest_first(gateway):
    client = gateway.sdk()
    file = await client.files.create(file=file_of([chat_line("a")]), purpose="batch")
    made = [
        (await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")).id
        for _ in range(5)
    ]
    assert [batch.id async for batch in client.batches.list(limit=2)] == made[::-1]
    assert (await error_of(client.batches.list(limit=101))).param == "limit"


async def test_a_batch_is_its_project_s_and_its_tenant_s_alone(gateway):
    client, other = gateway.sdk(), gateway.sdk(OTHER)
    batch = await ended(client, await create(client, [chat_line("a")]))
    for call in (other.batches.retrieve(batch.id), other.batches.cancel(batch.id)):
        refusal = await error_of(call)
        assert (refusal.status_code, refusal.code) == (404, "batch_not_found")
    assert [found async for found in other.batches.list()] == []
    taken = other.batches.create(input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h")
    assert (await error_of(taken)).code == "file_not_found"
    assert [found.id async for found in gateway.sdk(WIDE).batches.list()] == [batch.id]


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"endpoint": "/v1/moderations"}, "endpoint", "it is one of /v1/chat/completions"),
        ({"endpoint": "/v1/rerank"}, "endpoint", "it is one of"),
        ({"completion_window": "1h"}, "completion_window", "it is '24h'"),
        ({"input_file_id": "file-none"}, "input_file_id", "there is no file 'file-none'"),
        ({"metadata": {str(number): "x" for number in range(17)}}, "metadata", "17 pairs"),
        ({"metadata": {"x" * 65: "x"}}, "metadata", "65 and 1 characters"),
        ({"metadata": {"x": "x" * 513}}, "metadata", "at most 64 and 512"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 5}}, "output_expires_after", "3600"),
        ({"extra_body": {"colour": "red"}}, "colour", "colour"),
        ({"extra_headers": {"x-tollkeeper-tags": "no tag"}}, "x-tollkeeper-tags", "key=value"),
    ],
)
async def test_what_is_wrong_with_a_request_is_said_by_name(gateway, change, param, words):
    client = gateway.sdk()
    file = await client.files.create(file=file_of([chat_line("a")]), purpose="batch")
    wanted = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **change}
    refusal = await error_of(client.batches.create(**wanted))
    assert refusal.param == param and words in refusal.message


async def test_results_are_no_input(gateway):
    client = gateway.sdk()
    done = await ended(client, await create(client, [chat_line("a")]))
    refusal = await error_of(
        client.batches.create(input_file_id=done.output_file_id, endpoint=CHAT, completion_window="24h")
    )
    assert refusal.param == "input_file_id" and "batch_output" in refusal.message


async def test_a_key_held_to_other_endpoints_makes_no_batch_of_this_one(start_gateway, kit, keys):
    keys[0]["endpoints"] = ["files", "batches", "embeddings"]
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), keys=keys))
    refusal = await error_of(create(gateway.sdk(), [chat_line("a")]))
    assert refusal.status_code == 403 and refusal.param == "endpoint"


async def test_a_model_that_is_not_for_the_key_fails_the_batch(start_gateway, kit, keys):
    keys[0]["models"] = ["scripted-2"]
    pools = [("scripted-1", [kit.scripted()]), ("scripted-2", [kit.scripted()])]
    gateway = await start_gateway(kit.configuration(*pools, keys=keys))
    client = gateway.sdk()
    done = await ended(client, await create(client, [chat_line("a", model="scripted-2"), chat_line("b")]))
    assert [(error.line, error.code) for error in done.errors.data] == [(2, "model_not_found")]


async def test_ready_and_metrics_tell_of_batches(start_gateway, kit, eventually):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted(fault="stall")])), batch_concurrency=2)
    await create(gateway.sdk(), [chat_line(str(number)) for number in range(5)])
    wanted = {"in_progress": 1, "lines_in_flight": 2, "lines_waiting": 3}
    await eventually(lambda: gateway.gateway.health()["batches"] == wanted, 10)
    page = (await gateway.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).body.decode()
    assert "tollkeeper_batches_in_progress 1" in page and "tollkeeper_batch_lines_waiting 3" in page
