"""Anthropic's Message Batches with Anthropic's SDK: requests go in, results come out by line, at batch prices."""

import asyncio
from typing import Any

import anthropic
import pytest

OTHER = "tk-" + "B" * 43
PRICES = [
    {
        "model": "scripted-1",
        "version": "t/1",
        "usd_per_mtok": {"input_text": "1", "output_text": "2"},
        "batch_usd_per_mtok": {"input_text": "0.5", "output_text": "1"},
    }
]


@pytest.fixture
async def gateway(start_gateway, kit):
    keys = [{"key": kit.KEY, "tenant": "acme", "id": "key_1"}, {"key": OTHER, "tenant": "globex", "id": "key_2"}]
    return await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), prices=PRICES, keys=keys))


@pytest.fixture
async def sdk(gateway, kit):
    async with anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{gateway.port}", api_key=kit.KEY) as client:
        yield client


def asked(custom_id: str, **fields: Any) -> Any:
    messages = [{"role": "user", "content": "one two three"}]
    return {
        "custom_id": custom_id,
        "params": {"model": "scripted-1", "max_tokens": 3, "messages": messages, **fields},
    }


async def ended(client: anthropic.AsyncAnthropic, batch_id: str) -> Any:
    async with asyncio.timeout(60):
        while (found := await client.messages.batches.retrieve(batch_id)).processing_status != "ended":
            await asyncio.sleep(0.05)
    return found


async def test_each_request_has_its_result_and_is_recorded_at_batch_prices(gateway, sdk):
    made = await sdk.messages.batches.create(requests=[asked("a"), asked("b"), asked("wrong", top_k=-5)])
    assert made.type == "message_batch" and made.id.startswith("msgbatch_")
    assert made.processing_status == "in_progress" and made.results_url is None
    done = await ended(sdk, made.id)
    counts = done.request_counts
    assert (counts.succeeded, counts.errored, counts.processing, counts.canceled, counts.expired) == (2, 1, 0, 0, 0)
    assert done.ended_at is not None and done.ended_at >= done.created_at
    results = {one.custom_id: one.result async for one in await sdk.messages.batches.results(made.id)}
    assert set(results) == {"a", "b", "wrong"}
    assert results["a"].message.stop_reason == "max_tokens" and results["a"].message.usage.output_tokens == 3
    assert results["wrong"].type == "errored" and results["wrong"].error.error.type == "invalid_request_error"
    records = [record for record in gateway.requests() if record.outcome == "ok"]
    assert {(record.api, record.run_id, record.priority) for record in records} == {("messages", made.id, "batch")}
    assert all(record.cost_pico_usd == 500_000 * (record.usage.input_tokens or 0) + 1_000_000 * 3 for record in records)


async def test_batches_are_listed_to_their_owner_alone(gateway, sdk):
    made = [(await sdk.messages.batches.create(requests=[asked("a")])).id for _ in range(3)]
    await gateway.sdk().files.create(file=("x.jsonl", b"{}\n"), purpose="batch")
    page = await sdk.messages.batches.list(limit=2)
    assert [batch.id for batch in page.data] == made[:0:-1] and page.has_more
    assert [batch.id async for batch in page] == made[::-1]
    async with anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{gateway.port}", api_key=OTHER) as other:
        assert (await other.messages.batches.list()).data == []
        with pytest.raises(anthropic.NotFoundError):
            await other.messages.batches.retrieve(made[0])


async def test_a_cancelled_batch_says_which_requests_never_ran(start_gateway, kit):
    slow = kit.scripted(tokens=400, gap_ms=20)
    gateway = await start_gateway(kit.configuration(("scripted-1", [slow]), prices=PRICES))
    async with anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{gateway.port}", api_key=kit.KEY) as client:
        made = await client.messages.batches.create(
            requests=[asked(f"r{number}", max_tokens=400) for number in range(200)]
        )
        with pytest.raises(anthropic.BadRequestError, match="has not ended"):
            await client.get(f"/v1/messages/batches/{made.id}/results", cast_to=object)
        cancelled = await client.messages.batches.cancel(made.id)
        assert cancelled.processing_status in ("canceling", "ended") and cancelled.cancel_initiated_at is not None
        done = await ended(client, made.id)
        counts = done.request_counts
        assert counts.canceled > 0 and counts.canceled + counts.succeeded + counts.errored == 200
        kinds = [one.result.type async for one in await client.messages.batches.results(made.id)]
        assert kinds.count("canceled") == counts.canceled and len(kinds) == 200
        files = gateway.sdk().files
        async for file in files.list():
            await files.delete(file.id)
        again = await client.messages.batches.retrieve(made.id)  # which reads no file any more
        assert again.request_counts == counts


@pytest.mark.parametrize(
    ("requests", "named"),
    [
        ([], "1 to"),
        ([asked("a"), asked("a")], "requests[1]"),
        ([asked("a b")], "requests[0].custom_id"),
        ([asked("a" * 65)], "requests[0].custom_id"),
        ([asked("a", model="nobody")], "requests[0]"),
        ([asked("a", stream=True)], "requests[0]"),
    ],
)
async def test_what_cannot_be_run_is_refused_before_anything_is_kept(gateway, sdk, requests, named):
    with pytest.raises(anthropic.APIStatusError) as refusal:
        await sdk.messages.batches.create(requests=requests)
    assert refusal.value.status_code in (400, 404) and named in str(refusal.value.body)
    assert (await sdk.messages.batches.list()).data == []
