"""What an objective in danger holds back, seen by callers of a real gateway: batches are shed, canaries stand still."""

import json
from dataclasses import replace

import pytest

from contracts.errors import ConfigurationError
from contracts.rules.holds import HeldFor, HoldSpec, hold_on, is_canary

NIGHT_KEY = "tk-" + "N" * 43
FAR_NS = 2**62  # in the next century


@pytest.fixture
def start(start_gateway, kit):
    """Start a gateway with two models, a route to both of which one is a canary, and a key of class batch."""

    async def start():
        config = kit.configuration(
            ("scripted-1", [kit.scripted(tokens=2)]),
            ("scripted-2", [kit.scripted(tokens=2)]),
        )
        config["keys"].append({"key": NIGHT_KEY, "tenant": "acme", "id": "key_night", "priority": "batch"})
        config["routes"] = [
            {"name": "route", "choose": [{"model": "scripted-1"}, {"model": "scripted-2", "label": "canary"}]}
        ]
        return await start_gateway(config)

    return start


def spec(slo, hook, **about) -> HoldSpec:
    return HoldSpec(slo, hook, **{"until_ns": FAR_NS, **about})


def hold(gateway, *holds: HoldSpec) -> None:
    """Make these the holds, as the next look at the control database would."""
    directory = gateway.gateway.directory
    directory.snapshot = replace(directory.snapshot, holds=holds)


def night(**more):
    return {"Authorization": f"Bearer {NIGHT_KEY}", **more}


async def test_batches_are_served_before_refused_while_and_served_after_an_objective_is_in_danger(start):
    gateway = await start()
    assert (await gateway.chat(headers=night())).status == 200
    hold(gateway, spec("chat-ttft", "shed_batch", model="scripted-1"))
    for headers in (night(), {"X-Tollkeeper-Priority": "batch"}):
        answer = await gateway.chat(headers=headers)
        assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (429, "batch_held", "30")
        assert "objective 'chat-ttft' is at risk" in answer.error["message"]
    streamed = await gateway.chat(headers=night(), stream=True)
    assert streamed.status == 429
    assert (await gateway.chat()).status == 200, "other classes go on"
    assert (await gateway.chat(headers=night(), model="scripted-2")).status == 200, "another model"
    hold(gateway, spec("chat-ttft", "shed_batch", until_ns=1))
    assert (await gateway.chat(headers=night())).status == 200, "nobody asked for it again, and it is over"
    hold(gateway)
    assert (await gateway.chat(headers=night())).status == 200
    shed = [record for record in gateway.requests() if record.status == 429]
    assert [(record.outcome, record.attempts, record.cost_pico_usd) for record in shed] == [("rejected", 0, 0)] * 3


async def test_a_hold_of_another_tenant_holds_nobody_else(start):
    gateway = await start()
    hold(gateway, spec("up", "shed_batch", tenant="globex"), spec("up", "freeze_canaries"))
    assert (await gateway.chat(headers=night())).status == 200
    hold(gateway, spec("up", "shed_batch", tenant="acme"))
    assert (await gateway.chat(headers=night())).status == 429


async def test_a_frozen_canary_takes_nothing_until_the_hold_ends(start):
    gateway = await start()

    async def served():
        answers = [await gateway.chat(model="route") for _ in range(4)]
        assert {answer.status for answer in answers} == {200}
        return {record.model for record in gateway.requests()[-4:]}

    assert await served() == {"scripted-1", "scripted-2"}
    hold(gateway, spec("up", "freeze_canaries"))
    assert await served() == {"scripted-1"}
    decision = json.loads(gateway.requests()[-1].route_decision)["route"]
    assert decision["skipped"] == {"canary": "frozen while objective 'up' is at risk"}
    hold(gateway, spec("up", "freeze_canaries", model="scripted-1"))
    assert await served() == {"scripted-1"}, "an objective names the model that is served, not the canary's"
    for elsewhere in ({"model": "scripted-3"}, {"route": "other"}, {"until_ns": 1}):
        hold(gateway, spec("up", "freeze_canaries", **elsewhere))
        assert await served() == {"scripted-1", "scripted-2"}, elsewhere
    hold(gateway, spec("up", "freeze_canaries", route="route"))
    assert await served() == {"scripted-1"}
    hold(gateway)
    assert await served() == {"scripted-1", "scripted-2"}


async def test_batches_on_a_route_go_to_a_model_that_is_not_held(start):
    gateway = await start()
    hold(gateway, spec("up", "shed_batch", model="scripted-1"))
    answers = [await gateway.chat(headers=night(), model="route") for _ in range(4)]
    assert {answer.status for answer in answers} == {200}
    assert {record.model for record in gateway.requests()} == {"scripted-2"}


async def test_a_hold_of_a_route_holds_what_asks_for_it_alone(start):
    gateway = await start()
    hold(gateway, spec("up", "shed_batch", route="route"))
    assert [(await gateway.chat(headers=night(), model=name)).status for name in ("route", "scripted-1")] == [429, 200]
    hold(gateway, spec("up", "shed_batch", route="scripted-1"))  # as the records of who names a model have it
    assert [(await gateway.chat(headers=night(), model=name)).status for name in ("route", "scripted-1")] == [200, 429]


def test_a_hook_that_nothing_acts_on_is_refused_by_name():
    with pytest.raises(ConfigurationError, match="objective 'up' holds 'explode'; known: freeze_canaries, shed_batch"):
        HoldSpec("up", "explode", until_ns=1)  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize(
    ("about", "is_held"),
    [
        ({}, True),
        ({"tenant": "acme", "model": "m", "route": "r"}, True),
        ({"tenant": "globex"}, False),
        ({"model": "other"}, True),  # one of those that it may be led to
        ({"model": "third"}, False),
        ({"route": "m"}, False),
        ({"until_ns": 99}, False),
        ({"until_ns": 100}, False),
        ({"until_ns": 101}, True),
    ],
)
def test_empty_names_cover_all_and_a_hold_ends_at_its_end(about, is_held):
    who = HeldFor("acme", "r", ("m", "other"))
    one = spec("a", "shed_batch", **about)
    assert hold_on([one], "shed_batch", who, 100) == (one if is_held else None)
    assert hold_on([one], "freeze_canaries", who, 100) is None


def test_labels_tell_canaries():
    labels = ("canary", "canary-eu", "canaryish", "my-canary", "")
    assert [is_canary(label) for label in labels] == [True, True, False, False, False]
