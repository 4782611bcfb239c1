"""`cache_control` on an engine host of ours: marked prompts are written once, read again, never by another tenant."""

import json
from typing import Any

import pytest

from tests.gateway.host_process import MODEL, HostProcess

OTHER_KEY = "tk-" + "B" * 43
RULES = "You answer questions about bridges, ferries and tolls, in one short sentence. " * 8
PRICES = {"input_text": "1", "output_text": "2", "cache_read_text": "0.1"}


@pytest.fixture
def start_engine(start_gateway, kit, eventually, engine_host: HostProcess):
    async def start(prices: dict[str, str], **cache: Any):
        target = {"name": "e1", "kind": "engine", "url": engine_host.url}
        config = kit.configuration((MODEL, [target]))
        config["keys"].append({"key": OTHER_KEY, "tenant": "globex", "id": "key_2"})
        config["prices"][0]["usd_per_mtok"] = prices
        config["models"][0] |= cache
        gateway = await start_gateway(config)
        await eventually(
            lambda: all(one["state"] == "ready" for one in gateway.gateway.health()["engines"].values()), 60.0
        )
        return gateway

    return start


async def ask(gateway, rules: str, question: str = "What is a toll?", key: str = "", ttl: str = "5m", **fields: Any):
    mark = {"type": "ephemeral", "ttl": ttl}
    body = {
        "model": MODEL,
        "max_tokens": 4,
        "temperature": 0,
        "system": [{"type": "text", "text": rules, "cache_control": mark}],
        "messages": [{"role": "user", "content": question}],
        **fields,
    }
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return await gateway.ask(gateway.request(json.dumps(body).encode(), headers, path="/v1/messages"))


def used(answer) -> tuple[int, int]:
    assert answer.status == 200, answer.body
    usage = answer.json["usage"]
    return usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"]


async def test_a_marked_prompt_is_written_and_then_read_and_priced_as_such(start_engine):
    gateway = await start_engine({**PRICES, "cache_write_5m": "1.25"})
    rules = "First. " + RULES
    written, first_read = used(await ask(gateway, rules))
    assert written > 60 and written % 16 == 0 and first_read == 0
    again = used(await ask(gateway, rules, "What is a ferry?"))
    assert again[0] == 0 and again[1] >= written  # and what else is alike
    first, second = gateway.requests()
    usage = first.usage
    assert (usage.cache_write_5m, usage.cache_read_text) == (written, 0)
    paid = usage.input_text * 1_000_000 + written * 1_250_000 + usage.output_tokens * 2_000_000
    assert first.cost_pico_usd == paid and first.cost_basis == "price_card"
    usage = second.usage
    paid = usage.input_text * 1_000_000 + again[1] * 100_000 + usage.output_tokens * 2_000_000
    assert second.cost_pico_usd == paid


async def test_an_hour_is_written_as_an_hour_and_without_its_price_as_input(start_engine):
    gateway = await start_engine(PRICES)
    answer = await ask(gateway, "Second. " + RULES, ttl="1h")
    assert answer.json["usage"]["cache_creation"]["ephemeral_1h_input_tokens"] == used(answer)[0] > 60
    record = gateway.requests()[0]
    assert record.usage.cache_write_1h == used(answer)[0]
    assert record.cost_pico_usd == record.usage.input_tokens * 1_000_000 + record.usage.output_tokens * 2_000_000


async def test_identical_prompts_of_two_tenants_share_no_kept_prompt_and_no_answer(start_engine):
    gateway = await start_engine(PRICES, cache={"mode": "exact"})
    rules = "Third. " + RULES
    written = used(await ask(gateway, rules))[0]
    other = await ask(gateway, rules, key=OTHER_KEY)
    assert used(other) == (written, 0) and other.headers["x-cache"] == "miss"
    again = used(await ask(gateway, rules, "And now?", key=OTHER_KEY))
    assert again[0] == 0 and again[1] >= written
    assert [record.cache for record in gateway.requests()] == ["miss", "miss", "miss"]


async def test_a_mark_in_a_chat_is_honoured_too_and_a_stream_counts_the_same(start_engine):
    gateway = await start_engine(PRICES)
    content = [{"type": "text", "text": "Fourth. " + RULES, "cache_control": {"type": "ephemeral"}}]
    messages = [{"role": "system", "content": content}, {"role": "user", "content": "Hi"}]
    for _ in range(2):
        answer = await gateway.chat(model=MODEL, messages=messages, max_tokens=4, stream=True)
        assert answer.status == 200, answer.body
    first, second = (record.usage for record in gateway.requests())
    assert first.cache_write_5m and second.cache_read_text >= first.cache_write_5m and second.cache_write_5m == 0


async def test_a_mark_that_cannot_be_read_is_refused(start_engine):
    gateway = await start_engine(PRICES)
    content = [{"type": "text", "text": "Hi", "cache_control": {"type": "forever"}}]
    answer = await gateway.chat(model=MODEL, messages=[{"role": "user", "content": content}])
    assert (answer.status, answer.error["param"]) == (400, "cache_control")


async def test_a_stream_of_an_engine_is_given_again_event_by_event(start_engine):
    gateway = await start_engine(PRICES, cache={"mode": "exact"})
    first, again = [await gateway.chat(model=MODEL, max_tokens=24, temperature=0, stream=True) for _ in range(2)]
    assert (first.headers["x-cache"], again.headers["x-cache"]) == ("miss", "hit")
    assert len(first.events) > 10 and again.events == first.events and again.events[-1] == b"data: [DONE]"
