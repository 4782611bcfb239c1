"""Limits and budgets as a caller meets them: over HTTP, from a YAML file, with counters in memory."""

import asyncio

import openai
import pytest

OTHER_KEY = "tk-" + "B" * 43
MICRO = 1_000_000  # pico-USD a token at 1 USD per million tokens


def rule(metric, amount, window="minute", level="tenant", **more):
    found = {"id": f"{level}-{metric}", "tenant": "acme", "level": level, "metric": metric, "amount": amount}
    return found | ({"window": window} if window else {}) | more


def budget(amount_usd, **more):
    return {"id": "bud", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": amount_usd} | more


@pytest.fixture
def start(start_gateway, kit):
    """Start a gateway with one scripted model under limits and budgets."""

    async def start(limits=(), budgets=(), script=None, data=None, keys=None, **more):
        config = kit.configuration(
            ("scripted-1", [kit.scripted(**(script or {}))]), limits=list(limits), budgets=list(budgets), **more
        )
        if keys:
            config["keys"] += keys
        return await start_gateway(config, **({"data": data} if data else {}))

    return start


async def test_requests_are_admitted_below_and_at_a_limit_and_refused_above_it(start):
    gateway = await start([rule("requests", 2)])
    answers = [await gateway.chat() for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    error, headers = answers[2].error, answers[2].headers
    assert (error["code"], error["type"]) == ("rate_limit_exceeded", "rate_limit_error")
    assert "limit 'tenant-requests' (level tenant) is reached: 2 of 2 requests used in a minute" in error["message"]
    wait_ms = int(headers["retry-after-ms"])
    assert 58_000 < wait_ms <= 62_000
    assert int(headers["retry-after"]) == -(-wait_ms // 1000)
    [refused] = [record for record in gateway.requests() if record.outcome == "rejected"]
    assert (refused.limit, refused.status, refused.attempts) == ("tenant-requests", 429, 0)


async def test_every_reply_says_what_is_left(start):
    gateway = await start([rule("requests", 10), rule("tokens", 10_000), rule("tokens", 50_000, "day", id="long")])
    answers = [await gateway.chat(), await gateway.chat(stream=True)]
    for number, answer in enumerate(answers, start=1):
        headers = answer.headers
        assert headers["x-ratelimit-limit-requests"] == "10"
        assert headers["x-ratelimit-remaining-requests"] == str(10 - number)
        assert headers["x-ratelimit-limit-tokens"] == "10000", "the tightest of the two"
        assert 0 < int(headers["x-ratelimit-remaining-tokens"]) < 10_000
        assert headers["x-ratelimit-reset-requests"].endswith("s")
        assert headers["x-ratelimit-reset-tokens"].endswith("s")


async def test_a_request_refused_by_one_limit_burns_no_other(start):
    gateway = await start([rule("requests", 10), rule("tokens", 5, id="tiny")])
    for _ in range(20):
        assert (await gateway.chat()).status == 429
    counters = gateway.gateway.counters
    [requests] = [one for one in gateway.gateway.directory.snapshot.limits if one.metric == "requests"]
    assert counters.open(requests, "").state(0).used == 0


async def test_a_limit_for_each_key_counts_each_alone(start):
    keys = [{"key": OTHER_KEY, "tenant": "acme", "id": "key_2"}]
    gateway = await start([rule("requests", 1, level="key", subject="*")], keys=keys)
    other = {"Authorization": f"Bearer {OTHER_KEY}"}
    statuses = [
        (await gateway.chat()).status,
        (await gateway.chat()).status,
        (await gateway.chat(headers=other)).status,
    ]
    assert statuses == [200, 429, 200]


async def test_end_users_and_tags_are_counted_as_they_are_stated(start):
    limits = [
        rule("requests", 1, level="user", subject="*"),
        rule("requests", 2, level="tag", subject="feature=search", id="tagged"),
    ]
    gateway = await start(limits)
    assert [(await gateway.chat(user=name)).status for name in ("a", "b", "a")] == [200, 200, 429]
    tagged = {"X-Tollkeeper-Tags": "feature=search"}
    assert [(await gateway.chat(headers=tagged)).status for _ in range(3)] == [200, 200, 429]
    assert (await gateway.chat(headers={"X-Tollkeeper-Tags": "feature=mail"})).status == 200


async def test_a_slot_is_free_again_when_its_client_has_left(start):
    gateway = await start([rule("concurrency", 1, None)], script={"tokens": 5000, "gap_ms": 5})
    client = await gateway.connect()
    await client.send(gateway.request(stream=True))
    await client.head()
    refused = await gateway.chat()
    assert refused.status == 429 and "1 of 1 concurrent requests used at once" in refused.error["message"]
    client.close()
    for _ in range(200):
        if not gateway.gateway.admission.in_flight:
            break
        await asyncio.sleep(0.01)
    assert (await gateway.chat(max_tokens=1)).status == 200


async def test_tokens_are_reserved_by_estimate_and_settled_to_the_truth(start):
    gateway = await start([rule("tokens", 100_000)])
    assert (await gateway.chat()).status == 200
    [record] = gateway.requests()
    used = record.usage.input_tokens + record.usage.output_tokens
    assert record.reserved_tokens > used
    assert record.charge_tokens == [used] and record.overdraft_tokens == 0
    [limit] = gateway.gateway.directory.snapshot.limits
    assert gateway.gateway.counters.open(limit, "").state(0).used == used


@pytest.mark.parametrize(("left", "status"), [("0.000034", 429), ("0.000035", 200), ("0.000036", 200)])
async def test_a_budget_is_spent_down_to_what_pays_for_no_answer_worth_the_name(start, left, status):
    # 3 prompt tokens at 1 and 24 output tokens at 2 USD per million: 51 micro-USD. 35 pay for sixteen of output.
    gateway = await start(budgets=[budget(left)], script={"tokens": 24})
    answer = await gateway.chat()
    assert answer.status == status
    [record] = gateway.requests()
    assert (record.charged_pico_usd or 0) <= 36 * MICRO


async def test_what_a_nearly_spent_budget_still_pays_for_is_clipped_and_said(start):
    # 3 + 2 * 100 = 203 micro-USD is what the model would make; 63 pay for 30 output tokens.
    gateway = await start(budgets=[budget("0.000063")], script={"tokens": 100})
    answer = await gateway.chat(stream=False, max_tokens=100)
    assert answer.status == 200
    assert answer.json["choices"][0]["finish_reason"] == "length"
    assert answer.json["usage"]["completion_tokens"] == 30
    assert (answer.headers["x-tollkeeper-max-tokens"], answer.headers["x-tollkeeper-clipped-by"]) == ("30", "bud")
    [record] = gateway.requests()
    assert record.charged_pico_usd == record.cost_pico_usd == 63 * MICRO
    refused = await gateway.chat()
    assert (refused.status, refused.error["code"], refused.error["type"]) == (
        429,
        "insufficient_quota",
        "insufficient_quota",
    )
    assert "0.000063 of 0.000063 USD used this month" in refused.error["message"]
    assert refused.headers["x-should-retry"] == "false", "a month is more than two minutes"


async def test_a_soft_budget_tells_and_refuses_nobody(start, caplog):
    gateway = await start(budgets=[budget("0.00005", is_hard=False, thresholds=[50, 100])], script={"tokens": 24})
    assert [(await gateway.chat()).status for _ in range(3)] == [200, 200, 200]
    told = [record for record in caplog.records if record.message == "budget threshold passed"]
    assert [record.percent for record in told] == [50, 100], "once each"


async def test_money_is_never_spent_on_a_model_without_a_price_unless_the_rule_allows_it(start):
    gateway = await start(budgets=[budget("1")], prices=[])
    refused = await gateway.chat()
    assert (refused.status, refused.error["code"]) == (403, "unpriced_model")
    assert "'scripted-1' has no price" in refused.error["message"] and "'bud'" in refused.error["message"]
    lenient = await start(budgets=[budget("1", when_unpriced="allow")], prices=[])
    assert (await lenient.chat()).status == 200


async def test_a_model_that_costs_nothing_by_its_card_is_not_held_up_by_a_spent_budget(start):
    card = {"model": "scripted-1", "version": "free/1", "usd_per_mtok": {"input_text": "0", "output_text": "0"}}
    gateway = await start(budgets=[budget("0.000000000001")], prices=[card])
    assert [(await gateway.chat()).status for _ in range(3)] == [200, 200, 200]


async def test_a_long_answer_is_extended_while_there_is_room(start):
    gateway = await start([rule("tokens", 100_000)], script={"tokens": 3000})
    answer = await gateway.chat(stream=True)
    assert b'"finish_reason":"stop"' in answer.body
    [record] = gateway.requests()
    assert record.usage.output_tokens == 3000
    assert len(record.charge_tokens) > 2 and sum(record.charge_tokens) == 3003


async def test_an_answer_that_no_limit_has_room_for_ends_clearly_and_is_charged(start):
    gateway = await start([rule("output_tokens", 700)], script={"tokens": 5000, "burst": 1})
    await gateway.chat(max_tokens=100)
    answer = await gateway.chat(stream=True, stream_options={"include_usage": True})
    assert answer.status == 200
    *_, ending, usage, done = answer.events
    assert b'"finish_reason":"length"' in ending and b"tenant-output_tokens" in ending
    assert b'"completion_tokens":600' in usage and done == b"data: [DONE]"
    _, record = gateway.requests()
    assert (record.outcome, record.finish_reason, record.limit) == ("ok", "length", "tenant-output_tokens")
    assert sum(record.charge_tokens) == record.usage.input_tokens + 600
    assert record.overdraft_tokens == 0


async def test_the_sdk_takes_a_cut_stream_for_a_good_one(start):
    gateway = await start([rule("output_tokens", 700)], script={"tokens": 5000})
    stream = await gateway.sdk().chat.completions.create(
        model="scripted-1", messages=[{"role": "user", "content": "go"}], stream=True
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices[0].finish_reason == "length"


async def test_the_sdk_raises_rate_limit_error_with_the_reason(start):
    gateway = await start([rule("requests", 1)])
    client = gateway.sdk()
    messages = [{"role": "user", "content": "go"}]
    await client.chat.completions.create(model="scripted-1", messages=messages)
    with pytest.raises(openai.RateLimitError) as refused:
        await client.chat.completions.create(model="scripted-1", messages=messages)
    assert refused.value.code == "rate_limit_exceeded"


async def test_a_restart_forgets_no_cent_and_counts_none_twice(start, tmp_path):
    data = tmp_path / "kept"
    first = await start(budgets=[budget("0.001")], script={"tokens": 24}, data=data)
    for _ in range(3):
        await first.chat()
    await first.gateway.stop()
    second = await start(budgets=[budget("0.001")], script={"tokens": 24}, data=data)
    [rule_now] = second.gateway.directory.snapshot.budgets
    assert second.gateway.counters.open(rule_now, "").state(0).used == 3 * 51 * MICRO
    await second.chat()
    await second.gateway.stop()
    third = await start(budgets=[budget("0.001")], script={"tokens": 24}, data=data)
    assert third.gateway.counters.open(rule_now, "").state(0).used == 4 * 51 * MICRO


async def test_a_conversation_has_its_own_steps_tokens_and_money(start):
    limits = [
        rule("requests", 3, None, level="conversation", id="steps"),
        rule("tokens", 200, None, level="conversation", id="talk"),
    ]
    gateway = await start(limits, script={"tokens": 60})
    agent = {"X-Tollkeeper-Conversation-Id": "run-1"}
    answers = [await gateway.chat(headers=agent, max_tokens=60) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert "limit 'steps' (level conversation" in answers[3].error["message"]
    assert answers[3].headers["x-should-retry"] == "false"
    assert (await gateway.chat(headers={"X-Tollkeeper-Conversation-Id": "run-2"}, max_tokens=60)).status == 200
    assert (await gateway.chat()).status == 200, "a request of no conversation is under no guard"


async def test_a_runaway_conversation_is_cut_at_its_tokens(start):
    gateway = await start([rule("tokens", 100, None, level="conversation", id="talk")], script={"tokens": 5000})
    agent = {"X-Tollkeeper-Conversation-Id": "run-1"}
    answer = await gateway.chat(headers=agent, stream=True)
    [record] = gateway.requests()
    assert record.usage.output_tokens == 97 and record.finish_reason == "length"
    assert answer.headers["x-tollkeeper-max-tokens"] == "97"
    assert (await gateway.chat(headers=agent)).status == 429


async def test_thinking_ends_at_the_keys_cap(start):
    keys = [{"key": OTHER_KEY, "tenant": "acme", "id": "key_2", "max_thinking_tokens": 40}]
    gateway = await start(script={"tokens": 500, "reasoning": 400}, keys=keys)
    answer = await gateway.chat(headers={"Authorization": f"Bearer {OTHER_KEY}"}, stream=True)
    assert b'"finish_reason":"length"' in answer.body and b"thinking_tokens_exceeded" in answer.body
    [record] = gateway.requests()
    assert record.finish_reason == "length"
    assert (await gateway.chat(stream=True)).body.count(b'"finish_reason":"stop"') == 1


async def test_reasoning_effort_is_held_to_the_keys_cap_and_the_reply_says_so(start):
    keys = [{"key": OTHER_KEY, "tenant": "acme", "id": "key_2", "max_reasoning_effort": "low"}]
    gateway = await start(keys=keys)
    capped = {"Authorization": f"Bearer {OTHER_KEY}"}
    answer = await gateway.chat(headers=capped, reasoning_effort="high")
    assert answer.headers["x-tollkeeper-reasoning-effort"] == "low"
    assert "x-tollkeeper-reasoning-effort" not in (await gateway.chat(headers=capped, reasoning_effort="low")).headers
    assert "x-tollkeeper-reasoning-effort" not in (await gateway.chat(reasoning_effort="high")).headers


async def test_an_unreachable_target_costs_nothing(start):
    gateway = await start([rule("tokens", 1000)], [budget("0.001")], script={"fault": "refuse"})
    assert (await gateway.chat()).status == 502
    [record] = gateway.requests()
    assert record.charge_tokens == [] and not record.charged_pico_usd
    counters, snapshot = gateway.gateway.counters, gateway.gateway.directory.snapshot
    assert counters.open(snapshot.limits[0], "").state(0).used == 0
    assert counters.open(snapshot.budgets[0], "").state(0).used == 0


async def test_a_stream_that_breaks_is_charged_for_what_was_made(start):
    gateway = await start([rule("tokens", 10_000)], script={"tokens": 50, "fault": "break", "after": 20})
    await gateway.chat(stream=True)
    [record] = gateway.requests()
    assert record.outcome == "error"
    assert sum(record.charge_tokens) == 3 + 20


async def test_a_client_that_polls_without_listening_is_admitted_as_soon_as_the_window_has_room(start):
    gateway = await start([rule("requests", 1, "second")])
    statuses = []
    for _ in range(40):
        statuses.append((await gateway.chat()).status)
        await asyncio.sleep(0.05)
    assert statuses.count(200) >= 2, "once, and again when a second had passed"


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_limit_below_the_first_estimate_of_output_does_not_lock_its_key(start, is_streamed):
    gateway = await start([rule("tokens", 120, "minute")], script={"tokens": 20})
    reply = await gateway.chat(stream=is_streamed)
    assert reply.status == 200
    [record] = gateway.requests()
    assert (record.outcome, sum(record.charge_tokens)) == ("ok", 3 + 20)


async def test_a_prompt_above_the_whole_limit_is_refused_for_good(start):
    gateway = await start([rule("tokens", 2, "minute")])
    refused = await gateway.chat()
    assert refused.status == 429 and "can never fit" in refused.error["message"]
    assert refused.headers["x-should-retry"] == "false"
