"""What a pool's policy changes of a request's way: times, retries, budgets, and what is said when all are away."""

import pytest

from contracts.errors import ConfigurationError
from contracts.serving.failures import BreakerPolicy, FailurePolicy, HedgePolicy, Playbook, failure_policy, playbook_of

QUICK = {"backoff_seconds": 0.01, "longest_backoff_seconds": 0.05}


def with_failures(kit, targets, failures):
    config = kit.configuration(("scripted-1", targets))
    config["pools"][0]["failures"] = failures
    return config


async def test_a_first_token_that_does_not_come_in_the_pools_time_is_asked_of_the_next(start_gateway, kit):
    targets = [kit.scripted("stuck", weight=1000, first_ms=60_000), kit.scripted("well", tokens=2)]
    gateway = await start_gateway(with_failures(kit, targets, {"first_token_seconds": 0.05}))
    assert (await gateway.chat()).status == 200
    assert gateway.attempts()[0].error_code == "upstream_timeout"
    assert gateway.target("scripted-1", "stuck").running == 0


async def test_a_first_token_in_time_is_not_cut_off(start_gateway, kit):
    targets = [kit.scripted("slow", first_ms=20, gap_ms=60, tokens=3)]
    gateway = await start_gateway(with_failures(kit, targets, {"first_token_seconds": 0.1}))
    assert (await gateway.chat()).json["usage"]["completion_tokens"] == 3


async def test_a_stream_that_stalls_ends_by_an_error_that_says_how_far_it_got(start_gateway, kit):
    targets = [kit.scripted("stalls", fault="stall", after=3), kit.scripted("well")]
    gateway = await start_gateway(with_failures(kit, targets, {"between_tokens_seconds": 0.05}))
    answer = await gateway.chat(stream=True)
    assert b'"reached_tokens":3' in answer.events[-1] and b"upstream_timeout" in answer.events[-1]
    assert "between two tokens" in gateway.reasons[-1] and b"[DONE]" not in answer.body


async def test_the_messages_api_is_told_how_far_it_got_in_words(start_gateway, kit):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted("breaks", fault="break", after=2)])))
    body = {"model": "scripted-1", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "a b"}]}
    answer = await gateway.ask(kit.request(body, path="/v1/messages"))
    assert b"the answer had reached 2 tokens" in answer.body.rsplit(b"event: error", 1)[1]


async def test_the_total_time_holds_for_all_tries_together(start_gateway, kit):
    targets = [kit.scripted(name, first_ms=60_000) for name in ("s1", "s2", "s3")]
    policy = {"first_token_seconds": 0.06, "total_seconds": 0.1, "retries": 5, **QUICK}
    gateway = await start_gateway(with_failures(kit, targets, policy))
    answer = await gateway.chat()
    assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")
    [record] = gateway.requests()
    assert record.duration_ns < 1_000_000_000


@pytest.mark.parametrize(("retries", "tries"), [(0, 1), (1, 2), (2, 3)])
async def test_a_lone_target_is_tried_again_as_often_as_the_policy_says(start_gateway, kit, retries, tries):
    targets = [kit.scripted("s1", fault="error")]
    gateway = await start_gateway(with_failures(kit, targets, {"retries": retries, **QUICK}))
    assert (await gateway.chat()).status == 502
    [record] = gateway.requests()
    assert record.attempts == tries
    assert [one.reason for one in gateway.attempts()] == (["first", "retry", "retry"][:tries] if retries else [])


async def test_a_pool_without_budget_fails_over_from_the_dead_and_not_from_the_overloaded(
    start_gateway, kit, new_upstream
):
    busy = await new_upstream()
    busy.always(busy.whole({"error": {"message": "too much"}}, 503))
    nothing = {"retry_share": 0, "retries_per_second": 0}
    for bad, status in [
        (kit.http_target(busy.url, "busy", weight=1000), 502),
        (kit.scripted("dead", fault="refuse"), 200),
    ]:
        bad["weight"] = 1000
        gateway = await start_gateway(with_failures(kit, [bad, kit.scripted("well", tokens=1)], nothing))
        assert (await gateway.chat()).status == status
        pool = gateway.gateway.health_book.pool("scripted-1")
        assert pool.budget.refused == (status != 200)


async def test_a_server_that_is_down_for_a_while_and_says_so_is_left_to_rest(start_gateway, kit, new_upstream):
    down, good = await new_upstream(), await new_upstream()
    down.always(down.whole({"error": {"message": "maintenance"}}, 503, "retry-after: 60\r\n"))
    good.always(good.whole(good.completion()))
    targets = [kit.http_target(down.url, "down", weight=1000), kit.http_target(good.url, "good")]
    gateway = await start_gateway(kit.configuration(("mock", targets)))
    for _ in range(3):
        assert (await gateway.chat(model="mock")).status == 200
    assert len(down.requests) == 1
    assert gateway.gateway.health()["targets_away"]["mock/down"]["state"] == "resting"
    assert "targets_away" not in gateway.gateway.health()["degraded"]


async def test_where_all_are_away_a_pool_may_refuse_at_once_and_says_for_how_long(start_gateway, kit):
    breaker = {"failures_in_a_row": 2, "first_pause_seconds": 20}
    policy = {"when_all_away": "refuse", "breaker": breaker}
    gateway = await start_gateway(with_failures(kit, [kit.scripted("s1", fault="error")], policy))
    told = [await gateway.chat() for _ in range(3)]
    assert [(answer.status, answer.error["code"]) for answer in told] == [
        (502, "upstream_error"),
        (502, "upstream_error"),
        (503, "targets_away"),
    ]
    assert 19 <= int(told[2].headers["retry-after"]) <= 25
    assert gateway.requests()[-1].outcome == "rejected"
    health = gateway.gateway.health()
    assert health["status"] == "ready" and "targets_away" in health["degraded"]
    assert health["targets_away"]["scripted-1/s1"]["state"] == "open"


async def test_a_lone_target_that_comes_back_is_called_again_without_a_wait(start_gateway, kit, upstream):
    upstream.always(upstream.whole({"error": {"message": "down"}}, 500))
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    for _ in range(7):
        assert (await gateway.chat(model="mock")).status == 502
    assert gateway.gateway.health()["targets_away"]
    upstream.always(upstream.whole(upstream.completion()))
    assert (await gateway.chat(model="mock")).status == 200
    assert not gateway.gateway.health()["targets_away"]


async def test_the_file_says_where_a_policy_is_wrong(start_gateway, kit):
    for failures, said in [
        ({"hedge": {"quantile": 1.5}}, "hedge.quantile"),
        ({"breaker": {"first_pause_seconds": 9, "longest_pause_seconds": 1}}, "longest_pause_seconds is 1.0"),
        ({"retrys": 3}, "there is no such field"),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            await start_gateway(with_failures(kit, [kit.scripted()], failures))
    config = kit.configuration(("scripted-1", [kit.scripted()]), playbooks=[{"provider": "nobody"}])
    with pytest.raises(ConfigurationError, match="no target is of provider 'nobody'; known: scripted"):
        await start_gateway(config)


@pytest.mark.parametrize(
    ("kind", "field", "good", "bad"),
    [
        (BreakerPolicy, "failures_in_a_row", 1, 0),
        (BreakerPolicy, "failure_share", 1.0, 1.01),
        (BreakerPolicy, "failure_share", 0.01, 0.0),
        (BreakerPolicy, "slow_factor", 1.01, 1.0),
        (BreakerPolicy, "window_seconds", 0.1, 0.0),
        (HedgePolicy, "quantile", 0.99, 1.0),
        (HedgePolicy, "share", 1.0, 1.1),
        (BreakerPolicy, "ramp_seconds", 1e6, float("inf")),
        (HedgePolicy, "least_seconds", 1e6, float("inf")),
        (FailurePolicy, "retries", 10, 11),
        (FailurePolicy, "total_seconds", 1e6, float("inf")),
        (FailurePolicy, "retry_share", 0.0, -0.1),
        (FailurePolicy, "total_seconds", 0.1, 0.0),
        (FailurePolicy, "when_all_away", "refuse", "hope"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_name(kind, field, good, bad):
    kind(**{field: good})
    with pytest.raises(ConfigurationError, match=field):
        kind(**{field: bad})


def test_a_pause_that_never_ends_is_refused_whatever_the_longest_is():
    with pytest.raises(ConfigurationError, match="first_pause_seconds is inf; it must be a finite number"):
        BreakerPolicy(first_pause_seconds=float("inf"), longest_pause_seconds=float("inf"))


def test_a_playbook_does_not_let_the_provider_that_is_out_answer():
    with pytest.raises(ConfigurationError, match="cannot answer meanwhile"):
        Playbook("far", then=("near", "far"))


def test_a_policy_is_read_as_it_was_stated():
    stated = {"retries": 2, "breaker": None, "hedge": {"share": 0.5}}
    assert failure_policy(stated) == FailurePolicy(retries=2, breaker=None, hedge=HedgePolicy(share=0.5))
    with pytest.raises(ConfigurationError, match="field 'patience' is unknown"):
        failure_policy({"breaker": {"patience": 3}})


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"then": "anthropic"}, "'far': then is 'anthropic'; it must be a list"),
        ({"then": 5}, "'far': then is 5; it must be a list"),
        ({"then": ["near", 5]}, r"'far': then is \['near', 5\]; it must be a list"),
        ({"outage": "long"}, "'far': outage is 'long'; it must be a mapping"),
        ({"outage": {"patience": 3}}, "'far': outage: field 'patience' is unknown"),
    ],
)
def test_a_playbook_says_what_is_wrong_with_its_rules(rules, said):
    with pytest.raises(ConfigurationError, match=said):
        playbook_of("far", rules)


@pytest.mark.parametrize("then", [["near", "own"], ("near", "own")])
def test_a_playbook_is_read_as_it_was_stated(then):
    assert playbook_of("far", {"then": then}) == Playbook("far", then=("near", "own"))
    assert playbook_of("far", {}) == Playbook("far") == playbook_of("far", {"then": None})
