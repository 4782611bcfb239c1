"""Limits and budgets over HTTP where counters are leased from Redis: what is not leased here is not yet a lack."""

import pytest

pytestmark = pytest.mark.service

LIMIT = {"id": "tokens", "tenant": "acme", "level": "tenant", "metric": "tokens", "window": "minute"}
BUDGET = {"id": "month", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "100"}


@pytest.fixture
def start(start_gateway, upstream, kit, own_redis):
    """Start a gateway that counts in a Redis of its own and has one upstream."""
    targets = [kit.http_target(upstream.url)]

    async def start(tokens=1_000_000, budgets=(BUDGET,)):
        limits = [LIMIT | {"amount": tokens}]
        config = kit.configuration(("scripted-1", targets), limits=limits, budgets=list(budgets))
        return await start_gateway(config, redis_url=own_redis.url)

    return start


async def test_a_stream_that_comes_all_at_once_is_not_cut_where_there_is_room(start, upstream):
    pieces = [upstream.piece(upstream.chunk("x")) for _ in range(3000)]
    pieces += [upstream.piece(upstream.chunk(finish="stop")), upstream.piece(upstream.event(b"[DONE]")), upstream.END]
    upstream.always(upstream.stream_head() + b"".join(pieces))
    gateway = await start()
    answer = await gateway.chat(stream=True)
    assert b'"length"' not in answer.body
    [record] = gateway.requests()
    assert (record.finish_reason, record.usage.output_tokens, record.overdraft_tokens) == ("stop", 3000, 0)
    assert sum(record.charge_tokens) == record.usage.input_tokens + 3000


async def test_a_whole_answer_longer_than_its_reservation_is_charged_in_full(start, upstream):
    upstream.always(upstream.whole(upstream.completion(prompt=5, output=5000)))
    gateway = await start()
    assert (await gateway.chat()).status == 200
    [record] = gateway.requests()
    assert (sum(record.charge_tokens), record.overdraft_tokens) == (5005, 0)
    assert record.charged_pico_usd == record.cost_pico_usd == (5 + 2 * 5000) * 1_000_000


@pytest.mark.parametrize("tokens", [60, 700, 2500])
async def test_a_stream_that_comes_all_at_once_delivers_no_token_beyond_the_limit(start, upstream, tokens):
    words = [f"word{number:04d}" for number in range(3000)]
    events = [upstream.chunk(f"{word} ") for word in words]
    upstream.always(upstream.streamed(*events, upstream.chunk(finish="stop"), upstream.event(b"[DONE]")))
    gateway = await start(tokens=tokens)
    answer = await gateway.chat(stream=True)
    delivered = sum(word.encode() in answer.body for word in words)
    assert 0 < delivered <= tokens and b'"finish_reason":"length"' in answer.body
    [record] = gateway.requests()
    assert sum(record.charge_tokens) <= tokens
    assert record.overdraft_tokens == record.usage.output_tokens - delivered


async def test_a_shared_hard_budget_shows_its_overdraft(start, upstream):
    upstream.always(upstream.whole(upstream.completion(prompt=5, output=5000)))
    gateway = await start(budgets=[BUDGET | {"amount_usd": "0.001"}])
    assert (await gateway.chat()).status == 200
    [record] = gateway.requests()
    [budget] = gateway.gateway.directory.snapshot.budgets
    counter = gateway.gateway.counters.open(budget, "")
    assert counter.settled <= 1_000_000_000
    assert counter.settled + counter.overdraft == record.cost_pico_usd == (5 + 2 * 5000) * 1_000_000
