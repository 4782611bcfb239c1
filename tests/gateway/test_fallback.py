"""Several targets for one model: who answers, in what order, and what stands on the ledger."""

from collections import Counter

import pytest

from contracts.metering.gaps import unpack_gaps

FAULTS = {
    "refused": {"fault": "refuse"},
    "failed": {"fault": "error"},
    "broken": {"fault": "break"},
}


def two_targets(kit, first, second=None):
    return kit.configuration(("scripted-1", [first, second or kit.scripted("s2", tokens=4)]))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
async def test_the_second_target_answers_when_the_first_fails_before_its_first_token(
    start_gateway, kit, fault, streamed
):
    gateway = await start_gateway(two_targets(kit, kit.scripted("s1", **FAULTS[fault])))
    answer = await gateway.chat(stream=streamed)
    assert answer.status == 200
    [record] = gateway.requests()
    assert (record.outcome, record.replica, record.attempts, record.usage.output_tokens) == ("ok", "s2", 2, 4)
    first, second = gateway.attempts()
    assert (first.number, first.replica, first.reason, first.outcome) == (1, "s1", "first", "error")
    assert (second.number, second.replica, second.reason, second.outcome) == (2, "s2", "fallback", "ok")
    assert first.error_code and first.request_id == record.request_id == second.request_id
    assert second.cost_pico_usd == record.cost_pico_usd == 3 * 1_000_000 + 4 * 2_000_000
    assert len(unpack_gaps(second.gaps)) == 3 and second.ttft_ns <= record.ttft_ns


HTTP_FAULTS = {
    "500": ("whole", {"error": {"message": "out of memory"}}, 500),
    "429": ("whole", {"error": {"message": "slow down"}}, 429),
    "404": ("whole", {"error": {"message": "no such model"}}, 404),
    "401": ("whole", {"error": {"message": "bad key"}}, 401),
    "307": ("whole", {}, 307),
    "200 with an error": ("whole", {"error": {"message": "overloaded"}}, 200),
    "closed": "close",
    "reset": "reset",
    "silent": "stall",
    "garbage": b"not HTTP at all\r\n\r\n",
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("fault", HTTP_FAULTS)
async def test_the_second_server_answers_when_the_first_fails(start_gateway, kit, new_upstream, fault, streamed):
    bad, good = await new_upstream(), await new_upstream()
    script = HTTP_FAULTS[fault]
    bad.always(bad.whole(*script[1:]) if isinstance(script, tuple) else script)
    reply = good.streamed(good.chunk("Hi"), good.chunk(finish="stop"), good.usage(3, 1), good.event(b"[DONE]"))
    good.always(reply if streamed else good.whole(good.completion()))
    targets = [
        kit.http_target(bad.url, "bad", timeouts={"first_byte": 0.15}),
        kit.http_target(good.url, "good"),
    ]
    gateway = await start_gateway(kit.configuration(("mock", targets)))
    answer = await gateway.chat(model="mock", stream=streamed)
    assert answer.status == 200, answer.body
    [record] = gateway.requests()
    assert (record.replica, record.attempts, record.outcome) == ("good", 2, "ok")
    first, second = gateway.attempts()
    costs_something = fault in ("200 with an error", "closed", "reset", "silent", "garbage")
    assert first.outcome == "error" and first.count_method == ("estimate" if costs_something else "none")
    assert first.cost_pico_usd == (first.usage.input_tokens * 1_000_000 if costs_something else 0)
    assert second.usage == record.usage


async def test_a_port_where_nobody_listens_is_passed_over(start_gateway, kit, upstream):
    upstream.always(upstream.whole(upstream.completion()))
    targets = [kit.http_target("http://127.0.0.1:1/v1", "gone"), kit.http_target(upstream.url, "good")]
    gateway = await start_gateway(kit.configuration(("mock", targets)))
    assert (await gateway.chat(model="mock")).status == 200
    assert gateway.attempts()[0].error_code == "upstream_unreachable"


@pytest.mark.parametrize("after", [1, 3])
async def test_after_the_first_token_nobody_takes_over_and_the_stream_ends_by_an_error(start_gateway, kit, after):
    gateway = await start_gateway(two_targets(kit, kit.scripted("s1", fault="break", after=after)))
    answer = await gateway.chat(stream=True)
    assert answer.status == 200
    assert b"[DONE]" not in answer.body
    assert b'"error"' in answer.events[-1] and b"upstream_broken" in answer.events[-1]
    [record] = gateway.requests()
    assert (record.outcome, record.status, record.attempts, record.replica) == ("error", 502, 1, "s1")
    assert (record.usage.output_tokens, len(unpack_gaps(record.gaps))) == (after, after - 1)
    assert gateway.attempts() == []


async def test_a_whole_answer_may_be_taken_over_even_after_tokens(start_gateway, kit):
    gateway = await start_gateway(two_targets(kit, kit.scripted("s1", fault="break", after=3)))
    assert (await gateway.chat()).json["usage"]["completion_tokens"] == 4
    first, second = gateway.attempts()
    assert (first.usage.output_tokens, len(unpack_gaps(first.gaps))) == (3, 2)
    assert first.cost_pico_usd == 3 * 1_000_000 + 3 * 2_000_000  # the wasted attempt is priced, on its own row
    [record] = gateway.requests()
    assert record.usage == second.usage


@pytest.mark.parametrize("status", [400, 409, 413, 415, 422])
async def test_a_request_that_the_model_refuses_is_not_tried_elsewhere(start_gateway, kit, new_upstream, status):
    first, second = await new_upstream(), await new_upstream()
    first.always(first.whole({"error": {"message": "context is too long"}}, status))
    second.always(second.whole(second.completion()))
    targets = [kit.http_target(first.url, "first"), kit.http_target(second.url, "second")]
    gateway = await start_gateway(kit.configuration(("mock", targets)))
    answer = await gateway.chat(model="mock")
    assert (answer.status, answer.error["code"]) == (400, "upstream_rejected")
    assert "context is too long" in answer.error["message"]
    assert second.requests == []
    [record] = gateway.requests()
    assert (record.outcome, record.attempts) == ("error", 1) and not record.usage.is_known


async def test_when_all_fail_the_last_failure_is_the_answer_and_every_try_is_recorded(start_gateway, kit):
    targets = [kit.scripted(name, fault="error") for name in ("s1", "s2", "s3")]
    gateway = await start_gateway(kit.configuration(("scripted-1", targets)))
    answer = await gateway.chat()
    assert (answer.status, answer.error["code"], answer.error["type"]) == (502, "upstream_error", "api_error")
    assert [attempt.replica for attempt in gateway.attempts()] == ["s1", "s2", "s3"]
    assert gateway.requests()[0].attempts == 3


@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (5, 2, 1)])
async def test_weighted_round_robin_is_exact_over_every_turn(start_gateway, kit, weights):
    targets = [kit.scripted(f"s{index}", weight=weight, tokens=1) for index, weight in enumerate(weights)]
    gateway = await start_gateway(kit.configuration(("scripted-1", targets)))
    for _ in range(3 * sum(weights)):
        await gateway.chat()
    served = [record.replica for record in gateway.requests()]
    for turn in range(3):
        part = served[turn * sum(weights) : (turn + 1) * sum(weights)]
        assert Counter(part) == {f"s{index}": weight for index, weight in enumerate(weights)}


@pytest.mark.parametrize(
    ("retry_after", "told"), [("7", "7"), ("2.4", "3"), ("0", "1"), ("Wed, 21 Oct 2026 07:28:00 GMT", "1")]
)
async def test_an_upstreams_retry_after_reaches_the_client(start_gateway, kit, upstream, retry_after, told):
    upstream.always(upstream.whole({"error": {"message": "slow"}}, 429, headers=f"retry-after: {retry_after}\r\n"))
    gateway = await start_gateway(kit.configuration(("mock", [kit.http_target(upstream.url)])))
    answer = await gateway.chat(model="mock")
    assert (answer.status, answer.error["code"]) == (429, "upstream_rate_limited")
    assert answer.error["type"] == "rate_limit_error"
    assert answer.headers.get("retry-after") == told
