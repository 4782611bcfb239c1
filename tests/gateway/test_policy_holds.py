"""What an objective in danger holds back, seen by callers of a real gateway: batches are shed, canaries stand still."""

import json
from dataclasses import replace

import pytest

from contracts.errors import ConfigurationError
from contracts.holds import HoldSpec, hold_on, is_canary

NIGHT_KEY = "tk-" + "N" * 43


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


def hold(gateway, *holds: HoldSpec) -> None:
    """Make these the holds, as the next look at the control database would."""
    directory = gateway.gateway.directory
    directory.snapshot = replace(directory.snapshot, holds=holds)


def night(**more):
    return {"Authorization": f"Bearer {NIGHT_KEY}", **more}


async def test_batches_are_served_before_refused_while_and_served_after_an_objective_is_in_danger(start):
    gateway = await start()
    assert (await gateway.chat(headers=night())).status == 200
    hold(gateway, HoldSpec("chat-ttft", "shed_batch", model="scripted-1"))
    for headers in (night(), {"X-Tollkeeper-Priority": "batch"}):
        answer = await gateway.chat(headers=headers)
        assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "overloaded", "30")
        assert "objective 'chat-ttft' is in danger" in answer.error["message"]
    streamed = await gateway.chat(headers=night(), stream=True)
    assert streamed.status == 503
    assert (await gateway.chat()).status == 200, "other classes go on"
    assert (await gateway.chat(headers=night(), model="scripted-2")).status == 200, "another model"
    hold(gateway)
    assert (await gateway.chat(headers=night())).status == 200
    shed = [record for record in gateway.requests() if record.status == 503]
    assert [(record.outcome, record.attempts, record.cost_pico_usd) for record in shed] == [("rejected", 0, None)] * 3


async def test_a_hold_of_another_tenant_holds_nobody_else(start):
    gateway = await start()
    hold(gateway, HoldSpec("up", "shed_batch", tenant="globex"), HoldSpec("up", "freeze_canaries"))
    assert (await gateway.chat(headers=night())).status == 200
    hold(gateway, HoldSpec("up", "shed_batch", tenant="acme"))
    assert (await gateway.chat(headers=night())).status == 503


async def test_a_frozen_canary_takes_nothing_until_the_hold_ends(start):
    gateway = await start()

    async def served():
        answers = [await gateway.chat(model="route") for _ in range(4)]
        assert {answer.status for answer in answers} == {200}
        return {record.model for record in gateway.requests()[-4:]}

    assert await served() == {"scripted-1", "scripted-2"}
    hold(gateway, HoldSpec("up", "freeze_canaries"))
    assert await served() == {"scripted-1"}
    decision = json.loads(gateway.requests()[-1].route_decision)["route"]
    assert decision["skipped"] == {"canary": "frozen while objective 'up' is in danger"}
    hold(gateway, HoldSpec("up", "freeze_canaries", model="scripted-1"))
    assert await served() == {"scripted-1", "scripted-2"}, "the canary's own model is not in danger"
    hold(gateway)
    assert await served() == {"scripted-1", "scripted-2"}


async def test_batches_on_a_route_go_to_a_model_that_is_not_held(start):
    gateway = await start()
    hold(gateway, HoldSpec("up", "shed_batch", model="scripted-1"))
    answers = [await gateway.chat(headers=night(), model="route") for _ in range(4)]
    assert {answer.status for answer in answers} == {200}
    assert {record.model for record in gateway.requests()} == {"scripted-2"}


def test_a_hook_that_nothing_acts_on_is_refused_by_name():
    with pytest.raises(ConfigurationError, match="objective 'up' holds 'explode'; known: freeze_canaries, shed_batch"):
        HoldSpec("up", "explode")  # type: ignore[arg-type]  # what is refused


def test_empty_names_cover_all_and_labels_tell_canaries():
    assert hold_on([HoldSpec("a", "shed_batch")], "shed_batch", "any", "model") is not None
    assert hold_on([HoldSpec("a", "shed_batch", "acme", "m")], "shed_batch", "acme", "other") is None
    assert hold_on([HoldSpec("a", "shed_batch")], "freeze_canaries", "any", "model") is None
    assert [is_canary(label) for label in ("canary", "canary-eu", "canaryish", "my-canary", "")] == [
        True,
        True,
        False,
        False,
        False,
    ]
