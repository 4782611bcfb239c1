"""What is charged, and what the client is told, for the ways in which a limited request can end."""

import asyncio

import pytest

from contracts.api.generation import Delta, Result
from contracts.metering.usage import Usage

TOKENS = {"id": "tokens", "tenant": "acme", "level": "tenant", "metric": "tokens", "amount": 100_000}
LIMITS = [TOKENS | {"window": "minute"}]
OUTPUT = [TOKENS | {"id": "output", "metric": "output_tokens", "window": "minute", "amount": 600}]
BUDGETS = [{"id": "month", "tenant": "acme", "level": "tenant", "period": "month", "amount_usd": "1"}]


def used(gateway):
    """What every counter of a gateway holds, by rule."""
    snapshot, counters = gateway.gateway.directory.snapshot, gateway.gateway.counters
    return {rule.id: counters.open(rule, "").state(0).used for rule in (*snapshot.limits, *snapshot.budgets)}


class TalksAfterItsCancellation:
    """A target that passes on what was in progress when the client left, and accounts for it a little later."""

    def __init__(self, spec):
        self.spec = spec

    async def count_input(self, call):
        return 3

    async def call(self, call, sink):
        sink.delta(Delta(tokens=1, text="x"))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for _ in range(700):
                sink.delta(Delta(tokens=1, text="x"))
            await asyncio.sleep(0.01)
            sink.account(Result(usage=Usage(3, output_text=590), count_method="exact"))
            raise

    async def close(self):
        """Nothing to free."""


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_target_that_is_set_up_wrong_costs_its_callers_nothing(start_gateway, upstream, kit, status):
    upstream.always(upstream.whole({"error": {"message": "no"}}, status))
    config = kit.configuration(("scripted-1", [kit.http_target(upstream.url)]), limits=LIMITS, budgets=BUDGETS)
    gateway = await start_gateway(config)
    assert (await gateway.chat()).status == 502
    assert used(gateway) == {"tokens": 0, "month": 0}
    [record] = gateway.requests()
    assert record.charge_tokens == [] and not record.charged_pico_usd


async def test_a_fallback_that_was_refused_leaves_the_charge_at_what_the_first_target_made(start_gateway, kit):
    targets = [kit.scripted("s1", tokens=50, fault="break", after=20), kit.scripted("s2", fault="refuse")]
    gateway = await start_gateway(kit.configuration(("scripted-1", targets), limits=LIMITS, budgets=BUDGETS))
    for _ in range(2):  # the router begins with one and with the other
        assert (await gateway.chat()).status == 502
    assert [sum(record.charge_tokens) for record in gateway.requests()] == [23, 23]
    assert used(gateway) == {"tokens": 46, "month": 2 * (3 + 2 * 20) * 1_000_000}


async def test_an_answer_that_is_complete_at_the_limit_is_not_ended_again(start_gateway, upstream, kit):
    upstream.then(upstream.whole(upstream.completion(prompt=3, output=88)))
    pieces = [upstream.chunk("x") for _ in range(511)]
    upstream.then(upstream.streamed(*pieces, upstream.chunk("x", finish="stop"), upstream.event(b"[DONE]")))
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.http_target(upstream.url)]), limits=OUTPUT))
    assert (await gateway.chat(max_tokens=88)).status == 200
    answer = await gateway.chat(stream=True)
    assert answer.status == 200 and b'"length"' not in answer.body
    assert gateway.requests()[-1].finish_reason == "stop"
    assert used(gateway) == {"output": 600}


async def test_what_comes_after_the_client_has_left_makes_no_good_end_of_it(start_gateway, kit, eventually):
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()]), limits=OUTPUT))
    targets = gateway.gateway.targets._targets
    targets["scripted-1", "s1"] = TalksAfterItsCancellation(targets["scripted-1", "s1"].spec)
    client = await gateway.connect()
    await client.send(gateway.request(stream=True))
    await client.head()
    client.reset()
    await eventually(lambda: gateway.requests())
    [record] = gateway.requests()
    assert (record.outcome, record.usage.output_tokens, record.count_method) == ("cancelled", 590, "exact")
    assert used(gateway) == {"output": 590}
