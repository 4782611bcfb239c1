"""Cascades over HTTP: what is good enough, what leads on, what the client sees, and that every answer is paid."""

import json
from typing import Any

import pytest

from gateway.request.clock import Clock

MICRO = 1_000_000
JSON_WANTED = {
    "type": "json_schema",
    "json_schema": {
        "name": "x",
        "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    },
}


def completion(text="fine", logprobs=(), finish="stop", refusal=None, tokens=(3, 4)):
    message = {"role": "assistant", "content": text, "refusal": refusal}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    if logprobs:
        choice["logprobs"] = {"content": [{"token": "t", "logprob": value} for value in logprobs]}
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    return {"object": "chat.completion", "model": "up", "choices": [choice], "usage": usage}


@pytest.fixture
async def servers(new_upstream):
    return await new_upstream(), await new_upstream()


@pytest.fixture
def start(start_gateway, kit, servers):
    async def begin(first, cascade=None, second=None, fallbacks=(), **more):
        small, large = servers
        small.always(small.whole(first) if isinstance(first, dict) else first)
        if second is not None:
            large.always(large.whole(second) if isinstance(second, dict) else second)
        pools = [("small", [kit.http_target(small.url)]), ("large", [kit.http_target(large.url)])]
        made = kit.configuration(*pools, **more)
        made["prices"][1]["usd_per_mtok"] = {"input_text": "4", "output_text": "8"}
        choose = [{"model": "small"}, {"model": "large"}]
        made["routes"] = [{"name": "r", "choose": choose, "cascade": cascade or {}, "fallbacks": list(fallbacks)}]
        return await start_gateway(made)

    return begin


def told(record):
    return json.loads(record.route_decision)["cascade"]


def text_of(answer):
    if "event-stream" in answer.headers["content-type"]:
        chunks = [json.loads(event[6:]) for event in answer.events if event != b"data: [DONE]"]
        return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])
    return answer.json["choices"][0]["message"]["content"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_good_answer_of_the_first_model_is_the_answer(start, servers, stream):
    gateway = await start(completion("fine", [-0.1, -0.2]), {"min_mean_logprob": -0.5})
    answer = await gateway.chat(model="r", stream=stream)
    assert (answer.status, text_of(answer)) == (200, "fine")
    assert servers[0].requests[0].json["logprobs"] is True and "stream" not in servers[0].requests[0].json
    assert b"-0.1" not in answer.body and not servers[1].requests
    [record] = gateway.requests()
    assert (record.model, record.attempts, record.stream, record.cost_pico_usd) == ("small", 1, stream, 11 * MICRO)
    assert told(record) == [{"entry": "small", "lacks": "", "mean_logprob": -0.15000000000000002}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("known", "mean"), [((), None), ((-0.25,), -0.25)])
async def test_log_probabilities_that_a_server_does_not_know_are_no_fault_of_an_answer(
    start, servers, stream, known, mean
):
    first = completion("fine", [None, *known])
    tokens = first["choices"][0]["logprobs"]["content"]
    tokens.append({"token": "t"})
    tokens[0]["top_logprobs"] = [{"token": "u", "logprob": None}]
    gateway = await start(first, {"min_mean_logprob": -0.3})
    answer = await gateway.chat(model="r", stream=stream, logprobs=True)
    assert (answer.status, text_of(answer)) == (200, "fine") and not servers[1].requests
    [record] = gateway.requests()
    [only] = told(record)
    assert (only["entry"], only["lacks"], only.get("mean_logprob")) == ("small", "", mean)


LACKING: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "refusal": (completion("", refusal="no"), {}, {}),
    "refusal in words": (completion("I'm sorry, but I can't help with that."), {}, {}),
    "filtered": (completion("", finish="content_filter"), {}, {}),
    "low": (completion("eh", [-0.1, -1.1]), {"min_mean_logprob": -0.59}, {}),
    "no JSON": (completion("{n"), {}, {"response_format": {"type": "json_object"}}),
    "another shape": (completion('{"n": "1"}'), {}, {"response_format": JSON_WANTED}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("lack", LACKING)
async def test_an_answer_that_is_not_good_enough_leads_on_and_both_are_paid(start, servers, lack, stream):
    first, cascade, fields = LACKING[lack]
    small, large = servers
    second = completion('{"n": 1}')
    if stream:
        chunks = (large.chunk('{"n": 1}'), large.chunk(finish="stop"), large.usage(3, 4), large.event(b"[DONE]"))
        second = large.streamed(*chunks)
    gateway = await start(first, cascade, second)
    answer = await gateway.chat(model="r", stream=stream, **fields)
    assert (answer.status, text_of(answer)) == (200, '{"n": 1}')
    assert large.requests[0].json["model"] == "large" and large.requests[0].json.get("stream", False) is stream
    [record] = gateway.requests()
    assert (record.model, record.route, record.attempts, record.outcome) == ("large", "r", 2, "ok")
    assert record.usage.input_tokens == 3 and record.cost_pico_usd == record.charged_pico_usd == (11 + 44) * MICRO
    attempts = gateway.attempts()
    assert [(one.model, one.reason, one.outcome, one.cost_pico_usd) for one in attempts] == [
        ("small", "first", "ok", 11 * MICRO),
        ("large", "escalation", "ok", 44 * MICRO),
    ]
    assert [one["lacks"] != "" for one in told(record)] == [True]


@pytest.mark.parametrize(
    ("first", "cascade", "fields"),
    [
        (completion("eh", [-0.25, -0.75]), {"min_mean_logprob": -0.5}, {}),  # at the floor
        (completion("eh"), {"min_mean_logprob": -0.1}, {}),  # not known is not low
        (completion("I can't help falling in love"), {"on_refusal": False}, {}),
        (completion("no JSON"), {"on_schema_failure": False}, {"response_format": {"type": "json_object"}}),
        (completion('{"n": 1, "more": 2}'), {}, {"response_format": JSON_WANTED}),
        (completion("no JSON"), {}, {}),
    ],
)
async def test_what_the_policy_does_not_ask_for_is_good_enough(start, servers, first, cascade, fields):
    gateway = await start(first, cascade)
    assert (await gateway.chat(model="r", **fields)).status == 200
    assert not servers[1].requests


async def test_budgets_and_limits_count_every_answer_once_and_the_request_once(start):
    budget = {"tenant": "acme", "level": "tenant", "period": "day", "amount_usd": "1", "id": "all"}
    rules = [
        {"tenant": "acme", "level": "tenant", "metric": metric, "window": "day", "amount": 100_000}
        for metric in ("requests", "tokens")
    ]
    slots = {"tenant": "acme", "level": "tenant", "metric": "concurrency", "amount": 2}
    refused = completion("", refusal="no")
    gateway = await start(refused, second=completion(), limits=[*rules, slots], budgets=[budget])
    for count in (1, 2):
        answer = await gateway.chat(model="r", max_tokens=10)
        assert (answer.status, answer.headers["x-ratelimit-limit-requests"]) == (200, "100000")
        record = gateway.requests()[-1]
        assert (record.charged_pico_usd, sum(record.charge_tokens)) == (55 * MICRO, 14)
        store = gateway.gateway.counters
        used = {counter.rule.metric: counter.state(0).used for counter in _counters(gateway)}
        assert used["requests"] == count and used["tokens"] == 14 * count and used["concurrency"] == 0, store
        assert used["pico_usd"] == 55 * MICRO * count
    assert gateway.gateway._dispatcher.open_grants == 0


def _counters(gateway):
    stages = gateway.gateway._dispatcher.stages
    record = gateway.requests()[-1]
    plan = stages.limiter.plans.plan_for(record.who, "large", gateway.gateway.directory.snapshot)
    return [counter for counter, _ in plan.lines_for(stages.limiter.store, record.who, "large", "").all]


async def test_a_held_answer_comes_with_the_headers_of_its_model_and_of_the_cache(start_gateway, kit):
    limit = {"tenant": "acme", "level": "tenant", "metric": "requests", "window": "day", "amount": 9}
    config = scripted_cascade(kit, kit.scripted("s", tokens=2), kit.scripted("l"), limits=[limit])
    config["routes"][0]["cache"] = {}
    gateway = await start_gateway(config)
    for kept in ("miss", "hit"):
        answer = await gateway.chat(model="r", temperature=0)
        assert (answer.status, answer.headers["x-cache"]) == (200, kept)
        assert answer.headers["x-ratelimit-limit-requests"] == "9"
    first = next(record for record in gateway.requests() if record.cache == "miss")
    assert (first.model, first.attempts) == ("small", 1)


async def test_a_cascade_ends_where_its_money_does(start, servers):
    refused = completion("", refusal="no")
    gateway = await start(refused, {"max_cost_usd": "0.000012"}, completion())
    answer = await gateway.chat(model="r", max_tokens=4)
    assert answer.status == 200 and answer.json["choices"][0]["message"]["refusal"] == "no"
    assert not servers[1].requests and gateway.requests()[0].cost_pico_usd == 11 * MICRO


async def test_a_cascade_ends_where_its_time_does(start, servers):
    refused = completion("", refusal="no")
    gateway = await start(refused, {"latency_budget_ms": 1}, completion())
    cascades = gateway.gateway._dispatcher._call._cascades
    real = cascades._clock
    cascades._clock = Clock(real.wall_ns, lambda: real.monotonic_ns() + 2_000_000)  # two milliseconds ahead
    assert (await gateway.chat(model="r")).status == 200
    assert not servers[1].requests


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_not_lost_where_the_next_model_fails(start, servers, stream):
    refused = completion("I'm sorry, but I can't help with that.")
    gateway = await start(refused, second={"error": {"message": "x"}})
    servers[1].always(servers[1].whole({"error": {"message": "out of memory"}}, 500))
    answer = await gateway.chat(model="r", stream=stream)
    assert (answer.status, text_of(answer)) == (200, "I'm sorry, but I can't help with that.")
    [record] = gateway.requests()
    assert (record.outcome, record.model, record.attempts, record.cost_pico_usd) == ("ok", "small", 2, 11 * MICRO)
    assert sorted((one.number, one.reason, one.outcome) for one in gateway.attempts()) == [
        (1, "first", "ok"),
        (2, "escalation", "error"),
    ]
    assert gateway.gateway._dispatcher.open_grants == 0


async def test_a_first_model_that_fails_is_followed_and_fallbacks_are_for_failures_alone(start, servers, kit):
    gateway = await start(completion(), second=completion("second"), fallbacks=[{"model": "small", "label": "again"}])
    servers[0].always(servers[0].whole({"error": {"message": "x"}}, 500))
    assert text_of(await gateway.chat(model="r")) == "second"
    [record] = gateway.requests()
    assert (record.model, record.cost_pico_usd) == ("large", 44 * MICRO)
    assert [one.reason for one in gateway.attempts()] == ["first", "fallback"]


async def test_other_apis_and_several_choices_go_their_way(start, servers):
    gateway = await start(completion("", refusal="no"), second=completion("second"))
    body = {"model": "r", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}
    answer = await gateway.ask(gateway.request(body, path="/v1/messages"))
    assert answer.status == 200 and answer.json["content"][0]["text"] == "second"
    two = await gateway.chat(model="r", n=2)  # nobody could say which of them is meant
    assert two.status == 200 and two.json["choices"][0]["message"]["refusal"] == "no"


async def test_engine_answers_are_judged_and_streamed_as_any_other(start_gateway, kit):
    pools = [("small", [kit.scripted("s", reply="I cannot help with that.")]), ("large", [kit.scripted("l", tokens=4)])]
    config = kit.configuration(*pools)
    config["routes"] = [{"name": "r", "choose": [{"model": "small"}, {"model": "large"}], "cascade": {}}]
    gateway = await start_gateway(config)
    for stream in (False, True):
        answer = await gateway.chat(model="r", stream=stream)
        assert answer.status == 200 and text_of(answer).startswith("Hello! I am")
    for record in gateway.requests():
        assert (record.model, record.attempts, record.usage.output_tokens) == ("large", 2, 4)
    config["routes"][0]["choose"].reverse()
    good = await start_gateway(config)
    answer = await good.chat(model="r", stream=True)
    assert text_of(answer).startswith("Hello! I am") and answer.events[-1] == b"data: [DONE]"
    [record] = good.requests()
    assert (record.attempts, record.usage.output_tokens, record.stream) == (1, 4, True)


def scripted_cascade(kit, first, second, **more):
    config = kit.configuration(("small", [first]), ("large", [second]), **more)
    config["routes"] = [{"name": "r", "choose": [{"model": "small"}, {"model": "large"}], "cascade": {}}]
    return config


@pytest.mark.parametrize("at", ["held", "streamed"])
async def test_a_client_that_leaves_pays_for_what_was_made_and_leaves_nothing_held(start_gateway, kit, eventually, at):
    refusal = "I cannot help with that."
    first = kit.scripted("s", reply=refusal) if at == "streamed" else kit.scripted("s", fault="stall", after=2)
    second = kit.scripted("l", fault="stall", after=2)
    tokens = {"tenant": "acme", "level": "tenant", "metric": "tokens", "window": "day", "amount": 5000}
    gateway = await start_gateway(scripted_cascade(kit, first, second, limits=[tokens]))
    client = await gateway.connect()
    await client.send(gateway.request(model="r", stream=True))
    if at == "streamed":
        await client.head()
    else:
        await eventually(lambda: gateway.gateway._dispatcher.open_grants == 1)
    client.close()
    await eventually(lambda: gateway.requests())
    [record] = gateway.requests()
    assert record.outcome == "cancelled" and gateway.gateway._dispatcher.open_grants == 0
    if at == "streamed":
        first_cost, second_cost = (one.cost_pico_usd for one in gateway.attempts())
        assert first_cost == (3 + 5 * 2) * MICRO and record.cost_pico_usd == first_cost + second_cost
        assert sum(record.charge_tokens) == 3 + 5 + 3 + 2


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_not_lost_where_a_limit_refuses_the_next_model(start_gateway, kit, stream):
    limits = [
        {"tenant": "acme", "level": "tenant", "model": "large", "metric": "requests", "window": "day", "amount": 0},
        {"tenant": "acme", "level": "tenant", "metric": "tokens", "window": "day", "amount": 5000},
    ]
    refusal = kit.scripted("s", reply="I cannot help with that.")
    gateway = await start_gateway(scripted_cascade(kit, refusal, kit.scripted("l"), limits=limits))
    answer = await gateway.chat(model="r", stream=stream, max_tokens=50)
    assert (answer.status, text_of(answer)) == (200, "I cannot help with that.")
    [record] = gateway.requests()
    assert (record.model, record.attempts, record.limit, record.outcome) == ("small", 1, "", "ok")
    assert record.cost_pico_usd == (3 + 5 * 2) * MICRO and record.charge_tokens == [8]
    assert gateway.gateway._dispatcher.open_grants == 0


async def test_an_answer_that_runs_out_of_its_limit_while_it_is_held_is_given_as_far_as_it_came(start_gateway, kit):
    tokens = {"tenant": "acme", "level": "tenant", "metric": "output_tokens", "window": "day", "amount": 20}
    first = kit.scripted("s", tokens=60)
    gateway = await start_gateway(scripted_cascade(kit, first, kit.scripted("l"), limits=[tokens]))
    answer = await gateway.chat(model="r", stream=True)
    assert answer.status == 200 and text_of(answer).startswith("Hello! I am")
    [record] = gateway.requests()
    assert (record.finish_reason, record.model, record.outcome) == ("length", "small", "ok")
    assert record.usage.output_tokens == 20 and gateway.gateway._dispatcher.open_grants == 0
