"""Plans of pools whose policy compares replicas, and of counters in Redis: as all stages would do."""

import asyncio
import json

import pytest

from tests.gateway.request.pair import RULES, Pair, counters


async def test_a_policy_that_compares_replicas_chooses_by_a_plan_as_without_one(
    start_gateway, kit, upstream, monkeypatch
):
    targets = [kit.http_target(upstream.url, name) for name in ("u0", "u1", "u2")]
    config = kit.configuration(("mock", targets))
    config["pools"][0]["policy"] = "consistent_hash"  # which no measured time sways
    both = Pair(await start_gateway(config), await start_gateway(config), monkeypatch)
    for each in (both.short, both.long):
        each.gateway._dispatcher.stages.router._draw = lambda: 1.0  # none is sampled: predictions are times
    upstream.always(upstream.whole(upstream.completion("Hello", prompt=17, output=9)))
    for _ in range(6):  # each target's first call opens its connection, in a task
        for number in range(6):
            asked = [{"role": "user", "content": f"question {number} " * 40}]
            headers = {"x-tollkeeper-conversation-id": f"talk-{number}"}
            assert (await both.ask(messages=asked, headers=headers)).status == 200
    assert all(both.taken[1:])
    both.compare_books()
    replicas = {record.conversation_id: record.replica for record in both.short.requests()}
    assert len(set(replicas.values())) > 1
    for record in both.short.requests():
        assert record.replica == replicas[record.conversation_id], "a conversation stays where it was"


async def test_by_predicted_cost_a_plan_spreads_what_comes_at_once_and_counts_it_off_again(
    start_gateway, kit, upstream
):
    targets = [kit.http_target(upstream.url, name) for name in ("u0", "u1", "u2")]
    config = kit.configuration(("mock", targets))
    config["pools"][0]["policy"] = "cost"
    gateway = await start_gateway(config)
    upstream.always(upstream.whole(upstream.completion("Hello", prompt=900, output=9)))
    for turn in range(5):
        asked = [{"role": "user", "content": f"turn {turn}, " * 100}]
        answers = await asyncio.gather(*[gateway.chat(model="mock", messages=asked) for _ in range(9)])
        assert {answer.status for answer in answers} == {200}
    dispatcher, records = gateway.gateway._dispatcher, gateway.requests()
    assert sum(dispatcher.taken) >= 36, "all but those that came before the key was known"
    ((_, pool),) = dispatcher.stages.router.status()["pools"].items()
    assert pool["decisions"] == len(records) == 45
    assert {record.replica for record in records} == {"u0", "u1", "u2"}
    dispatcher.stages.router._draw = lambda: 0.0
    assert (await gateway.chat(model="mock", messages=asked)).status == 200
    assert dispatcher.taken[-1]
    assert json.loads(gateway.requests()[-1].route_decision)["replica"].keys() >= {"predicted_ms", "chosen"}
    assert [replica["running"] for replica in pool["replicas"].values()] == [0, 0, 0]


@pytest.fixture
def start_counted(start_gateway, upstream, kit, own_redis):
    """Start a gateway that counts in a Redis of its own and has one upstream."""

    async def start(**rules):
        config = kit.configuration(("mock", [kit.http_target(upstream.url)]), **(rules or RULES))
        return await start_gateway(config, redis_url=own_redis.url)

    return start


@pytest.mark.service
@pytest.mark.parametrize("made", [9, 16, 40], ids=["less than reserved", "as much", "more than max_tokens"])
async def test_with_counters_in_redis_a_plan_charges_what_was_used(start_counted, upstream, made):
    gateway = await start_counted()
    upstream.always(upstream.whole(upstream.completion("Hello", prompt=17, output=made)))
    for _ in range(40):
        answer = await gateway.chat(model="mock", max_tokens=16)
        assert answer.status == 200
        assert "x-ratelimit-remaining-tokens" in answer.headers
    dispatcher = gateway.gateway._dispatcher
    assert sum(dispatcher.taken) > 10, "leases are there for what comes next"
    records = gateway.requests()
    assert len(records) == 40
    for record in records:
        assert record.usage.output_tokens == made
        assert record.charged_pico_usd == record.cost_pico_usd == (17 + 2 * made) * 1_000_000
        assert sum(record.charge_tokens) == 17 + made
    for (_, metric, _), (used, reserved) in counters(gateway).items():
        assert reserved == 0
        assert (
            used == {"requests": 40, "tokens": 40 * (17 + made), "pico_usd": 40 * (17 + 2 * made) * 1_000_000}[metric]
        )
    assert (dispatcher.open_grants, gateway.gateway.admission.in_flight) == (0, 0)


@pytest.mark.service
async def test_with_counters_in_redis_no_plan_passes_a_limit(start_counted, upstream):
    limit = {"tenant": "acme", "level": "tenant", "metric": "tokens", "window": "minute", "amount": 2000}
    gateway = await start_counted(limits=[limit])
    upstream.always(upstream.whole(upstream.completion("Hello", prompt=10, output=16)))
    answers = []
    for _ in range(20):
        asked = [gateway.chat(model="mock", max_tokens=16) for _ in range(8)]
        answers += await asyncio.gather(*asked)
    passed = [answer for answer in answers if answer.status == 200]
    assert {answer.status for answer in answers} == {200, 429}
    assert 50 <= len(passed) <= 2000 // 26
    charged = sum(sum(record.charge_tokens) for record in gateway.requests())
    assert charged == 26 * len(passed) <= 2000


@pytest.mark.service
async def test_with_counters_in_redis_a_stream_goes_along_all_stages(start_counted, upstream):
    gateway = await start_counted()
    upstream.always(upstream.whole(upstream.completion("Hello", prompt=17, output=9)))
    for _ in range(20):
        await gateway.chat(model="mock", max_tokens=16)
    gateway.gateway._dispatcher.taken.clear()
    upstream.always(upstream.streamed(upstream.chunk("x"), upstream.chunk(finish="stop"), upstream.event(b"[DONE]")))
    answer = await gateway.chat(model="mock", max_tokens=16, stream=True)
    assert b"[DONE]" in answer.body
    assert gateway.gateway._dispatcher.taken == [False]
