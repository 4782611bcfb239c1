"""What requests are charged that leave models on their way: every answer once, what failed not at all."""

from types import SimpleNamespace
from typing import Any

import pytest

from contracts.api.chat import ChatRequest, Message
from contracts.api.generation import Result
from contracts.metering.usage import Usage
from contracts.pricing.prices import UNPRICED
from contracts.recording.records import GpuShare
from contracts.serving.configuration import EMPTY_SNAPSHOT, TargetSpec
from gateway.limits.demand import FREE, GPU, OUTPUT
from gateway.limits.estimates.counting import TokenEstimator
from gateway.limits.estimates.output_estimates import SteadyEstimates
from gateway.limits.reservation import Grant
from gateway.request.attempt import Attempt
from gateway.request.charges.charging import EarlierAnswer, used_by, used_earlier
from gateway.request.charges.settlement import Settlement
from gateway.request.clock import Clock
from gateway.request.reserving import Reserving
from gateway.routing.drill.standalone import standalone_chat
from tests.backends.llm.engine_fake import FakeHost, Play
from tests.gateway.routing.routes.test_cascade import MICRO, completion, scripted_cascade, servers, start, text_of

__all__ = ["servers", "start"]

REFUSAL = "I cannot help with that."
BUDGET = {"tenant": "acme", "level": "tenant", "period": "day", "amount_usd": "1", "id": "all"}


def rule(metric, amount, **more):
    window = {} if metric == "concurrency" else {"window": "day"}
    return {"tenant": "acme", "level": "tenant", "metric": metric, "amount": amount, **window, **more}


def with_fallbacks(kit, *pools, **more):
    """One route over the models of these pools, each a fallback of those before it."""
    config = kit.configuration(*pools, **more)
    first, *others = [{"model": name} for name, _ in pools]
    config["routes"] = [{"name": "r", "choose": [first], "fallbacks": others}]
    return config


async def test_an_answer_is_charged_once_where_the_client_leaves_before_the_next_model_is_asked(
    start_gateway, kit, eventually
):
    first, second = kit.scripted("s", reply=REFUSAL), kit.scripted("l", fault="stall", after=2)
    config = scripted_cascade(kit, first, second, limits=[rule("tokens", 50_000)], budgets=[BUDGET])
    config["pools"][1]["queue"] = {"max_in_flight": 1}
    gateway = await start_gateway(config)
    await leave_while_queued(gateway, eventually, "large")
    [record] = gateway.requests()
    assert record.cost_pico_usd == record.charged_pico_usd == (3 + 5 * 2) * MICRO
    assert (record.model, record.outcome, record.charge_tokens) == ("small", "cancelled", [8])
    assert gateway.gateway._dispatcher.open_grants == 1  # of the request that fills the pool


async def leave_while_queued(gateway, eventually, model):
    """Fill the model's pool, and leave a request along the route while it waits for that."""
    other, client = await gateway.connect(), await gateway.connect()
    await other.send(gateway.request(model=model, stream=True))
    await eventually(lambda: gateway.gateway.queues.get(model).fair.load.in_flight)
    await client.send(gateway.request(model="r"))
    await eventually(lambda: gateway.gateway.queues.get(model).fair.waiting)
    client.close()
    await eventually(lambda: gateway.requests())


async def test_an_answer_that_is_given_since_the_next_model_failed_is_charged(start, servers):
    gateway = await start(completion("I'm sorry, but I can't help with that."), budgets=[BUDGET])
    servers[1].always(servers[1].whole({"error": {"message": "out of memory"}}, 500))
    assert (await gateway.chat(model="r", max_tokens=10)).status == 200
    [record] = gateway.requests()
    assert record.cost_pico_usd == record.charged_pico_usd == 11 * MICRO


async def test_one_slot_is_enough_to_ask_a_further_model(start_gateway, kit):
    slots = rule("concurrency", 1)
    first, second = kit.scripted("s", reply=REFUSAL), kit.scripted("l", tokens=4)
    gateway = await start_gateway(scripted_cascade(kit, first, second, limits=[slots]))
    for _ in range(2):
        assert text_of(await gateway.chat(model="r")).startswith("Hello! I am")
    assert [record.model for record in gateway.requests()] == ["large", "large"]


async def test_what_a_failed_model_used_is_not_charged_to_the_next_ones_rules(start_gateway, kit):
    broken, away = kit.scripted("s1", fault="break", after=2), kit.http_target("http://127.0.0.1:9/v1")
    rules = {"limits": [rule("tokens", 5_000, model="m2")], "budgets": [{**BUDGET, "model": "m2"}]}
    gateway = await start_gateway(with_fallbacks(kit, ("m1", [broken]), ("m2", [away]), **rules))
    assert (await gateway.chat(model="r", max_tokens=10)).status == 502
    [record] = gateway.requests()
    assert (record.model, record.charged_pico_usd, record.charge_tokens) == ("m2", 0, [])
    assert record.cost_pico_usd == 7 * MICRO


@pytest.mark.interpreted
@pytest.mark.parametrize("ruled", ["m1", "m2", ""])
async def test_a_client_that_leaves_the_next_models_queue_pays_nothing_for_the_one_that_failed(
    start_gateway, kit, eventually, monkeypatch, ruled
):
    learned = []
    monkeypatch.setattr(SteadyEstimates, "learn", lambda self, *facts: learned.append(facts))
    first, second = kit.scripted("s1", fault="break", after=2), kit.scripted("s2", fault="stall", after=2)
    budget = {**BUDGET, "model": ruled} if ruled else BUDGET
    config = with_fallbacks(kit, ("m1", [first]), ("m2", [second]), budgets=[budget])
    config["pools"][1]["queue"] = {"max_in_flight": 1}
    gateway = await start_gateway(config)
    await leave_while_queued(gateway, eventually, "m2")
    [record] = gateway.requests()
    assert (record.model, record.outcome, record.charged_pico_usd) == ("m1", "cancelled", 0)
    assert not learned, "what one model made says nothing of the next one's answers"


@pytest.mark.parametrize("models", [2, 3])
async def test_what_failed_is_not_charged_however_many_models_refuse_after_it(start_gateway, kit, models):
    refused = [f"m{number}" for number in range(2, models + 1)]
    limits = [rule("requests", 0, model=name) for name in refused]
    pools = [("m1", [kit.scripted("s1", fault="break", after=2)]), *((name, [kit.scripted(name)]) for name in refused)]
    gateway = await start_gateway(with_fallbacks(kit, *pools, limits=limits, budgets=[BUDGET]))
    await gateway.chat(model="r", max_tokens=10)
    [record] = gateway.requests()
    assert (record.model, record.cost_pico_usd, record.charged_pico_usd) == ("m1", 7 * MICRO, 0)


async def test_an_earlier_answer_that_two_hosts_made_together_is_charged_whole(
    start_gateway, kit, tmp_path, eventually
):
    plays = [Play(tokens=5, piece=" I cannot help.", fault="die", after=2), Play(tokens=5, piece=" I cannot help.")]
    hosts = [await FakeHost(tmp_path / f"h{number}.sock", play).start() for number, play in enumerate(plays)]
    engines = [{"name": host.path.stem, "kind": "engine", "url": host.url} for host in hosts]
    config = kit.configuration(
        ("tiny", engines), ("large", [kit.scripted("l", tokens=4)]), limits=[rule("tokens", 9000)]
    )
    config["routes"] = [
        {"name": "r", "choose": [{"model": "tiny"}, {"model": "large"}], "cascade": {"max_cost_usd": 1}}
    ]
    gateway = await start_gateway(config)
    try:
        await eventually(lambda: all(one["state"] == "ready" for one in gateway.gateway.health()["engines"].values()))
        assert text_of(await gateway.chat(model="r")).startswith("Hello! I am")
    finally:
        for host in hosts:
            await host.stop()
    first, second, third = gateway.attempts()
    assert (second.reason, third.reason) == ("continuation", "escalation")
    prompt = second.usage.input_tokens
    [record] = gateway.requests()
    assert sum(record.charge_tokens) == prompt + 5 + 3 + 4
    assert record.cost_pico_usd == (prompt + 5 * 2 + 3 + 4 * 2) * MICRO


def attempt_of(gpu_ns):
    share = None if gpu_ns is None else GpuShare(prefill_ns=gpu_ns)
    usage = Usage(input_text=3, output_text=4)
    return Attempt(1, TargetSpec("t", "p", "engine"), "first", 0, 0, result=Result(gpu=share), usage=usage)


def life_of(*attempts):
    request = ChatRequest("m", [Message("user", "a")])
    life = standalone_chat(b"", 0, 0, EMPTY_SNAPSHOT)
    life.request, life.attempts, life.usage = request, list(attempts), attempts[-1].usage
    return life


@pytest.mark.interpreted
@pytest.mark.parametrize(("first_ns", "earlier_ns", "last_ns"), [(100, 100, 1000), (None, 5000, 1000)])
def test_gpu_time_is_charged_to_the_answer_it_was_for(first_ns, earlier_ns, last_ns):
    first, last = attempt_of(first_ns), attempt_of(1000)
    first.is_left = True
    holding: Any = Holding()
    grant = Grant(holding, FREE, 3, 4)
    assert used_by(life_of(first, last), grant)[GPU] == last_ns
    assert used_earlier([first], grant, first.usage, UNPRICED)[GPU] == earlier_ns


class Holding:
    """A reservation of 5,000 of everything but output, of which it has none."""

    lines = SimpleNamespace(counts_gpu=True, all=[("counter", OUTPUT)])

    def __init__(self):
        self.extended = []

    def reserved(self, place):
        return 0 if place == OUTPUT else 5000

    def lacking(self, used):
        return tuple(max(wanted - self.reserved(place), 0) for place, wanted in enumerate(used))

    def extend(self, amounts, now_ns):
        self.extended.append(amounts[OUTPUT])
        return len(self.extended) > 1  # once room was sought


class SharedStore:
    is_shared = True

    def __init__(self):
        self.asked = []

    async def seek_room(self, lines, claimant, now_ns):
        self.asked += lines


@pytest.mark.interpreted
async def test_what_an_earlier_answer_used_beyond_its_grant_is_sought_in_shared_counters_too():
    store = SharedStore()
    holding: Any = Holding()
    stages: Any = SimpleNamespace(limiter=SimpleNamespace(store=store), settlement=Settlement(TokenEstimator()))
    life = life_of(attempt_of(1000))
    life.earlier = (EarlierAnswer([attempt_of(100)], Grant(holding, FREE, 3, 4)),)
    await Reserving(stages, Clock()).reserve_late(life)
    assert store.asked == [("counter", 4)] and holding.extended == [4, 4]
