"""Routes as applications meet them: which model answers, what it is asked, who pays for what, and what is refused."""

import json
from collections import Counter
from typing import Any

import pytest
import yaml

from contracts.errors import ConfigurationError
from tests.gateway.conftest import KEY

MICRO = 1_000_000  # pico-USD: what an input token costs at 1 USD per million


def routed(kit, *routes, pools=None, **more):
    """Two models, small and large (four times as dear), and these routes."""
    made = kit.configuration(
        *(pools or [("small", [kit.scripted("s", tokens=4)]), ("large", [kit.scripted("l", tokens=4)])])
    )
    made["prices"][1]["usd_per_mtok"] = {"input_text": "4", "output_text": "8"}
    return {**made, "routes": list(routes), **more}


def route(*choose, name="assistant", **more):
    entries = [{"model": entry} if isinstance(entry, str) else entry for entry in choose]
    return {"name": name, "choose": entries, **more}


def decided(record):
    return json.loads(record.route_decision)["route"]


async def test_a_route_is_priced_limited_and_recorded_by_the_model_that_answers(start_gateway, kit):
    limit = {"tenant": "acme", "level": "tenant", "model": "large", "metric": "requests", "window": "day", "amount": 1}
    gateway = await start_gateway(routed(kit, route("large", fallbacks=[{"model": "small"}]), limits=[limit]))
    for _ in range(2):  # the second finds the limit of the large model reached
        assert (await gateway.chat(model="assistant")).status == 200
    first, second = gateway.requests()
    assert (first.requested_model, first.route, first.model, first.replica) == ("assistant", "assistant", "large", "l")
    assert (second.route, second.model, second.replica, second.limit) == ("assistant", "small", "s", "")
    assert first.cost_pico_usd == (3 * 4 + 4 * 8) * MICRO and second.cost_pico_usd == (3 + 4 * 2) * MICRO
    assert (first.price_version, second.price_version) == ("t/2", "t/1")
    assert decided(first) == {"order": ["large", "small"]}


async def test_a_failing_model_is_followed_by_the_next_and_each_attempt_is_its_models(start_gateway, kit):
    pools = [("small", [kit.scripted("s", fault="error")]), ("large", [kit.scripted("l", tokens=4)])]
    gateway = await start_gateway(routed(kit, route("small", fallbacks=[{"model": "large"}]), pools=pools))
    answer = await gateway.chat(model="assistant", stream=True)
    assert answer.status == 200
    [record] = gateway.requests()
    assert (record.model, record.replica, record.outcome, record.attempts) == ("large", "l", "ok", 2)
    assert [(one.model, one.reason, one.outcome) for one in gateway.attempts()] == [
        ("small", "first", "error"),
        ("large", "fallback", "ok"),
    ]
    assert record.cost_pico_usd == (3 * 4 + 4 * 8) * MICRO


async def test_what_a_model_reserved_is_given_back_when_the_next_one_answers(start_gateway, kit):
    pools = [("small", [kit.scripted("s", fault="error")]), ("large", [kit.scripted("l", tokens=4)])]
    slot = {"tenant": "acme", "level": "tenant", "metric": "concurrency", "amount": 1}
    tokens = {"tenant": "acme", "level": "tenant", "metric": "tokens", "window": "day", "amount": 100}
    config = routed(kit, route("small", fallbacks=[{"model": "large"}]), pools=pools, limits=[slot, tokens])
    gateway = await start_gateway(config)
    for _ in range(3):  # a slot that stayed taken would refuse the second
        answer = await gateway.chat(model="assistant", max_tokens=8)
        assert answer.status == 200
    assert gateway.gateway._dispatcher.open_grants == 0
    assert [record.charge_tokens for record in gateway.requests()] == [[7], [7], [7]]
    assert answer.headers["x-ratelimit-limit-tokens"] == "100"
    assert int(answer.headers["x-ratelimit-remaining-tokens"]) > 100 - 4 * 7 - 20


async def test_where_the_next_model_is_refused_the_record_is_of_the_one_that_failed_and_charges_nothing(
    start_gateway, kit
):
    pools = [("small", [kit.scripted("s", fault="break", after=2)]), ("large", [kit.scripted("l")])]
    limit = {"tenant": "acme", "level": "tenant", "model": "large", "metric": "requests", "window": "day", "amount": 0}
    tokens = {"tenant": "acme", "level": "tenant", "metric": "tokens", "window": "day", "amount": 100}
    config = routed(kit, route("small", fallbacks=[{"model": "large"}]), pools=pools, limits=[limit, tokens])
    gateway = await start_gateway(config)
    answer = await gateway.chat(model="assistant", max_tokens=8)
    assert (answer.status, answer.error["code"]) == (502, "upstream_broken")
    [record] = gateway.requests()
    assert (record.model, record.replica, record.limit, record.attempts) == ("small", "s", "", 1)
    assert record.cost_pico_usd == (3 + 2 * 2) * MICRO and record.charged_pico_usd == 0
    assert record.charge_tokens == [] and gateway.gateway._dispatcher.open_grants == 0


async def test_where_no_model_answers_the_last_failure_is_told(start_gateway, kit):
    pools = [("small", [kit.scripted("s", fault="error")]), ("large", [kit.scripted("l", fault="refuse")])]
    gateway = await start_gateway(routed(kit, route("small", fallbacks=[{"model": "large"}]), pools=pools))
    answer = await gateway.chat(model="assistant")
    assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")
    [record] = gateway.requests()
    assert (record.outcome, record.route, record.attempts) == ("error", "assistant", 2)


async def test_a_stream_that_has_begun_is_not_begun_again_by_another_model(start_gateway, kit):
    pools = [("small", [kit.scripted("s", fault="break", after=2)]), ("large", [kit.scripted("l", tokens=4)])]
    gateway = await start_gateway(routed(kit, route("small", fallbacks=[{"model": "large"}]), pools=pools))
    answer = await gateway.chat(model="assistant", stream=True)
    assert b"upstream_broken" in answer.events[-1]
    [record] = gateway.requests()
    assert (record.model, record.attempts, record.outcome) == ("small", 1, "error")


async def test_models_share_a_routes_requests_exactly_by_weight(start_gateway, kit):
    gateway = await start_gateway(routed(kit, route({"model": "small", "weight": 3}, {"model": "large", "weight": 1})))
    for _ in range(8):
        await gateway.chat(model="assistant")
    assert Counter(record.model for record in gateway.requests()) == {"small": 6, "large": 2}


async def test_a_conversation_stays_with_the_model_it_began_with(start_gateway, kit):
    gateway = await start_gateway(routed(kit, route("small", "large")))
    for conversation in ("a", "b", "c", "d", "e", "f"):
        for _ in range(3):
            await gateway.chat(model="assistant", headers={"x-tollkeeper-conversation-id": conversation})
    models: dict[str, set[str]] = {}
    for record in gateway.requests():
        models.setdefault(record.conversation_id, set()).add(record.model)
    assert all(len(found) == 1 for found in models.values())
    assert set.union(*models.values()) == {"small", "large"}


async def test_a_server_is_asked_by_the_models_name_and_all_else_stays(start_gateway, kit, upstream):
    upstream.always(upstream.whole(upstream.completion()))
    pools = [("small", [kit.http_target(upstream.url)]), ("large", [kit.scripted()])]
    gateway = await start_gateway(routed(kit, route("small"), pools=pools))
    body = b'{"model": "assistant", "temperature": 1e0, "messages":[{"role":"user","content":"a"}], "x_own": [1, 2]}'
    assert (await gateway.chat(body)).status == 200
    sent = upstream.requests[0]
    assert sent.json["model"] == "small" and b'"temperature":1e0' in sent.body and b'"x_own":[1, 2]' in sent.body


async def test_messages_of_anthropics_api_take_routes_as_well(start_gateway, kit, upstream):
    upstream.always(upstream.whole(upstream.completion()))
    pools = [("small", [kit.scripted("s", fault="error")]), ("large", [kit.http_target(upstream.url)])]
    gateway = await start_gateway(routed(kit, route("small", fallbacks=[{"model": "large"}]), pools=pools))
    body = {"model": "assistant", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}
    answer = await gateway.ask(gateway.request(body, path="/v1/messages"))
    assert answer.status == 200 and answer.json["type"] == "message"
    assert upstream.requests[0].json["model"] == "large"
    counted = await gateway.ask(gateway.request(body, path="/v1/messages/count_tokens"))
    assert counted.status == 200 and counted.json["input_tokens"] > 0


async def test_each_model_samples_as_its_own_definition_says(start_gateway, kit, upstream):
    upstream.always(upstream.whole({"error": {"message": "no"}}, 500))
    config = routed(
        kit,
        route("small", fallbacks=[{"model": "large"}]),
        pools=[("small", [kit.http_target(upstream.url)]), ("large", [kit.http_target(upstream.url)])],
    )
    config["models"][0]["defaults"] = {"temperature": 0.5, "max_tokens": 7}
    config["models"][1]["pinned"] = {"top_p": 0.25}
    gateway = await start_gateway(config)
    await gateway.chat(model="assistant")
    first, second = (request.json for request in upstream.requests)
    assert (first["temperature"], first["max_tokens"]) == (0.5, 7) and "top_p" not in first
    assert second["top_p"] == 0.25 and "temperature" not in second and "max_tokens" not in second


async def test_a_model_whose_pinned_value_contradicts_the_caller_is_passed_over(start_gateway, kit):
    config = routed(kit, route("small", fallbacks=[{"model": "large"}]))
    config["models"][0]["pinned"] = {"temperature": 0}
    gateway = await start_gateway(config)
    assert (await gateway.chat(model="assistant", temperature=0.7)).status == 200
    assert gateway.requests()[0].model == "large"


async def test_a_key_may_use_a_route_where_it_may_not_use_its_models(start_gateway, kit):
    config = routed(kit, route("small"), route("large", name="other"))
    config["keys"][0]["models"] = ["assistant"]
    gateway = await start_gateway(config)
    assert (await gateway.chat(model="assistant")).status == 200
    for refused in ("small", "other", "nothing"):
        answer = await gateway.chat(model=refused)
        assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    listed = await gateway.sdk().models.list()
    assert [model.id for model in listed.data] == ["assistant"]


async def test_conditions_choose_by_tag_and_prompt_size_and_say_why_not(start_gateway, kit):
    tagged = {"model": "large", "when": {"tags": {"tier": "gold"}}}
    short = {"model": "small", "when": {"max_prompt_tokens": 50}}
    gateway = await start_gateway(routed(kit, route(tagged, short, refuses_unmatched=True)))
    await gateway.chat(model="assistant", headers={"x-tollkeeper-tags": "tier=gold"})
    long_prompt = [{"role": "user", "content": "word " * 2000}]
    await gateway.chat(model="assistant")
    refused = await gateway.chat(model="assistant", messages=long_prompt)
    assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "no_route", "model")
    assert "tag tier=gold is not on the request" in refused.error["message"]
    assert "max_prompt_tokens is 50" in refused.error["message"] and "word" not in refused.error["message"]
    gold, plain, rejected = gateway.requests()
    assert (plain.model, rejected.outcome, rejected.route) == ("small", "rejected", "assistant")
    assert decided(plain)["skipped"] == {"large": "tag tier=gold is not on the request"}
    assert gold.model in ("large", "small")


PINNED = {"eu": "eu-west-1", "us": "us-east-1"}


@pytest.mark.parametrize("policy", ["round_robin", "cost"])
async def test_what_is_pinned_is_seen_nowhere_else_whatever_fails(start_gateway, kit, new_upstream, policy):
    servers = {region: await new_upstream() for region in PINNED}
    servers["eu"].always(servers["eu"].whole({"error": {"message": "out of memory"}}, 500))
    servers["us"].always(servers["us"].whole(servers["us"].completion()))
    targets = [kit.http_target(server.url, name, region=PINNED[name]) for name, server in servers.items()]
    pools = [("small", targets), ("large", targets)]
    pinned = route("small", fallbacks=[{"model": "large"}], regions=["eu-west-1"])
    config = routed(kit, pinned, route("small", name="anywhere"), pools=pools)
    for pool in config["pools"]:
        pool["policy"] = policy
    gateway = await start_gateway(config)
    for stream in (False, True):
        answer = await gateway.chat(model="assistant", stream=stream)
        assert answer.status == 502
        body = {"model": "assistant", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}]}
        await gateway.ask(gateway.request(body, path="/v1/messages/count_tokens"))
    assert not servers["us"].requests and len(servers["eu"].requests) >= 2
    assert (await gateway.chat(model="anywhere")).status == 200 and len(servers["us"].requests) == 1


async def test_a_region_is_the_gateways_own(start_gateway, kit):
    near = {"model": "small", "when": {"regions": ["eu-west-1"]}}
    config = routed(kit, route(near, fallbacks=[{"model": "large"}]))
    for region, expected in (("eu-west-1", "small"), ("us-east-1", "large"), ("", "large")):
        gateway = await start_gateway(config, region=region)
        await gateway.chat(model="assistant")
        assert gateway.requests()[0].model == expected


async def test_a_nearly_spent_budget_leads_to_the_cheaper_model(start_gateway, kit):
    dear = {"model": "large", "when": {"min_budget_left": 0.5}}
    budget = {"tenant": "acme", "level": "tenant", "period": "day", "amount_usd": "0.000110"}
    config = routed(kit, route(dear, fallbacks=[{"model": "small"}]), budgets=[budget])
    gateway = await start_gateway(config)
    for _ in range(3):
        assert (await gateway.chat(model="assistant", max_tokens=4)).status == 200
    # 44 of 110 millionths a request: 100 %, 60 % and 20 % are left.
    assert [record.model for record in gateway.requests()] == ["large", "large", "small"]


async def test_a_request_that_may_cost_more_than_its_bound_goes_elsewhere(start_gateway, kit):
    bounded = {"model": "large", "when": {"max_cost_usd": "0.0005"}}
    gateway = await start_gateway(routed(kit, route(bounded, fallbacks=[{"model": "small"}])))
    await gateway.chat(model="assistant", max_tokens=2)
    await gateway.chat(model="assistant", max_tokens=5000)
    few, many = gateway.requests()
    assert (few.model, many.model) == ("large", "small")


async def test_a_prompt_that_a_context_cannot_hold_goes_to_a_larger_one(start_gateway, kit):
    config = routed(kit, route("small", fallbacks=[{"model": "large"}]))
    config["models"][0]["context_tokens"] = 100
    gateway = await start_gateway(config)
    await gateway.chat(model="assistant", max_tokens=100)
    await gateway.chat(model="assistant", max_tokens=101)
    assert [record.model for record in gateway.requests()] == ["small", "large"]


async def test_a_route_leads_on_to_another_and_its_weights_hold_there(start_gateway, kit):
    inner = route("small", "large", name="inner")
    outer = route({"route": "inner", "weight": 2}, {"model": "large", "label": "direct"})
    gateway = await start_gateway(routed(kit, outer, inner))
    for _ in range(12):
        await gateway.chat(model="assistant")
    # Two of three go on to the inner route, where each model gets half of them.
    assert Counter(record.model for record in gateway.requests()) == {"small": 4, "large": 8}


async def test_a_batch_may_name_a_route(start_gateway, kit):
    gateway = await start_gateway(routed(kit, route("small")))
    snapshot = gateway.gateway.directory.snapshot
    assert snapshot.serves("assistant") and not snapshot.serves("assistant", {"small"})
    assert snapshot.names() == {"small": 0, "large": 0, "assistant": 0}


async def test_routes_are_reloaded_with_the_file(start_gateway, kit, tmp_path):
    config = routed(kit, route("small"))
    gateway = await start_gateway(config)
    await gateway.chat(model="assistant")
    config["routes"] = [route("large")]
    (tmp_path / "gateway0.yaml").write_text(yaml.safe_dump(config))
    gateway.gateway._source.ask()
    await gateway.gateway.directory.refresh()
    await gateway.chat(model="assistant")
    assert [record.model for record in gateway.requests()] == ["small", "large"]
    assert KEY not in gateway.requests()[0].route_decision


async def test_a_changed_file_whose_route_cannot_stand_leaves_the_last_in_use(start_gateway, kit, tmp_path):
    config = routed(kit, route("small"))
    gateway = await start_gateway(config)
    config["routes"] = [route({"route": "assistant"})]
    (tmp_path / "gateway0.yaml").write_text(yaml.safe_dump(config))
    gateway.gateway._source.ask()
    await gateway.gateway.directory.refresh()
    assert "comes to a loop" in gateway.gateway.directory.refused
    assert (await gateway.chat(model="assistant")).status == 200


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (route("small", name="large"), "has the name of a model"),
        (route("nothing"), "leads to model 'nothing', which is not served"),
        (route({"route": "assistant"}), "comes to a loop: assistant -> assistant"),
        (route("small", regions=["eu-west-1"]), "is a dead end at 'small'"),
        (route({"model": "small", "provider": "azure"}), "is a dead end at 'small'"),
        (route({"model": "small", "weight": 0}), "the weight of 'small' must be 1 to"),
        (route({"model": "small", "when": {"min_budget_left": 1.01}}, "large"), "min_budget_left"),
    ],
)
async def test_a_route_that_cannot_stand_stops_the_start_with_its_line(start_gateway, kit, broken, complaint):
    with pytest.raises(ConfigurationError, match=r"gateway0\.yaml, line \d+: routes\.0") as refused:
        await start_gateway(routed(kit, broken))
    assert complaint in refused.value.message


OTHER_WAYS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "/v1/completions": ({"prompt": "one two"}, {"object": "text_completion", "choices": [{"index": 0, "text": "a"}]}),
    "/v1/embeddings": ({"input": "one"}, {"object": "list", "data": [{"index": 0, "embedding": [0.5]}]}),
    "/v1/rerank": ({"query": "a", "documents": ["b"]}, {"results": [{"index": 0, "relevance_score": 0.5}]}),
    "/v1/responses": ({"input": "one"}, None),
}


@pytest.mark.parametrize("path", OTHER_WAYS)
async def test_every_operation_takes_routes_and_falls_back_along_them(start_gateway, kit, new_upstream, path):
    bad, good = await new_upstream(), await new_upstream()
    fields, reply = OTHER_WAYS[path]
    bad.always(bad.whole({"error": {"message": "out of memory"}}, 500))
    usage = {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}
    good.always(good.whole(good.completion() if reply is None else {**reply, "model": "x", "usage": usage}))
    pools = [("small", [kit.http_target(bad.url)]), ("large", [kit.http_target(good.url)])]
    gateway = await start_gateway(routed(kit, route("small", fallbacks=[{"model": "large"}]), pools=pools))
    answer = await gateway.ask(gateway.request({"model": "assistant", **fields}, path=path))
    assert answer.status == 200, answer.body
    assert (bad.requests[0].json["model"], good.requests[0].json["model"]) == ("small", "large")
    [record] = gateway.requests()
    assert (record.route, record.model, record.attempts, record.outcome) == ("assistant", "large", 2, "ok")


async def test_a_model_that_answers_late_is_left_for_one_that_does_not_and_asked_again_later(start_gateway, kit):
    quick = {"model": "small", "when": {"ttft_objective_ms": 40}}
    pools = [("small", [kit.scripted("s", first_ms=50, tokens=1)]), ("large", [kit.scripted("l", tokens=1)])]
    gateway = await start_gateway(routed(kit, route(quick, fallbacks=[{"model": "large"}]), pools=pools))
    for _ in range(2):  # what applications ask of the model itself is known as well
        await gateway.chat(model="small")
    for _ in range(3):
        await gateway.chat(model="assistant")
    models = [record.model for record in gateway.requests()]
    assert models == ["small", "small", "small", "large", "large"]
    assert "its time to first token is" in decided(gateway.requests()[-1])["skipped"]["small"]


async def test_a_caller_that_cannot_wait_is_led_to_the_quick_model(start_gateway, kit):
    pools = [
        ("small", [kit.scripted("s", tokens=2, first_ms=1)]),
        ("large", [kit.scripted("l", tokens=2, first_ms=60)]),
    ]
    gateway = await start_gateway(routed(kit, route("large", fallbacks=[{"model": "small"}]), pools=pools))
    for _ in range(3):
        await gateway.chat(model="assistant")
    await gateway.chat(model="assistant", headers={"x-tollkeeper-latency-budget-ms": "30"}, max_tokens=1)
    assert [record.model for record in gateway.requests()] == ["large", "large", "large", "small"]
    assert decided(gateway.requests()[-1])["late"] == ["large"]
    for wrong in ("0", "-1", "86400001", "1.5", "soon", "1" * 500):
        answer = await gateway.chat(model="assistant", headers={"x-tollkeeper-latency-budget-ms": wrong})
        assert (answer.status, answer.error["param"]) == (400, "x-tollkeeper-latency-budget-ms")
