"""A pool's queue as callers meet it: turns by tenant and class, shedding, and clients that leave while they wait."""

import asyncio
import json

import pytest

LIGHT_KEY = "tk-" + "L" * 43


@pytest.fixture
def start(start_gateway, kit):
    """Start a gateway whose only pool takes few requests at once."""

    async def start(queue, script=None, **key_options):
        config = kit.configuration(("scripted-1", [kit.scripted(**(script or {"gap_ms": 2, "tokens": 20}))]))
        config["pools"][0]["queue"] = queue
        config["keys"].append({"key": LIGHT_KEY, "tenant": "light", "id": "key_light", **key_options})
        return await start_gateway(config)

    return start


async def until_waiting(gateway, count):
    for _ in range(500):
        if gateway.gateway.queues.get("scripted-1").fair.waiting >= count:
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"never {count} waiting")


def light(**more):
    return {"Authorization": f"Bearer {LIGHT_KEY}", **more}


async def test_a_light_tenant_does_not_wait_behind_all_of_a_heavy_ones_requests(start):
    gateway = await start({"max_in_flight": 1})
    heavy = [asyncio.create_task(gateway.chat()) for _ in range(8)]
    await until_waiting(gateway, 7)
    assert (await gateway.chat(headers=light())).status == 200
    assert sum(task.done() for task in heavy) <= 3
    assert [answer.status for answer in await asyncio.gather(*heavy)] == [200] * 8
    [record] = [record for record in gateway.requests() if record.who.tenant == "light"]
    assert record.wait_ns > 0 and record.admission_ns >= record.wait_ns


async def test_a_higher_class_goes_first_and_no_key_gets_a_better_class_than_its_own(start):
    gateway = await start({"max_in_flight": 1}, priority="interactive")
    standard = [asyncio.create_task(gateway.chat()) for _ in range(4)]
    await until_waiting(gateway, 3)
    pushy = asyncio.create_task(gateway.chat(headers={"X-Tollkeeper-Priority": "interactive"}))
    await until_waiting(gateway, 4)
    assert (await gateway.chat(headers=light())).status == 200
    assert sum(task.done() for task in standard) <= 1
    await asyncio.gather(*standard, pushy)
    classes = {record.who.tenant: record.priority for record in gateway.requests()}
    assert classes == {"acme": "standard", "light": "interactive"}


async def test_an_unknown_class_is_refused_by_name(start):
    gateway = await start({"max_in_flight": 1})
    answer = await gateway.chat(headers={"X-Tollkeeper-Priority": "urgent"})
    assert (answer.status, answer.error["param"]) == (400, "x-tollkeeper-priority")
    assert "'urgent'" in answer.error["message"] and "interactive, standard, batch" in answer.error["message"]


async def test_a_full_queue_sheds_with_503_and_a_wait_and_what_is_shed_is_charged_nothing(start):
    gateway = await start({"max_in_flight": 1, "max_waiting": 2}, script={"gap_ms": 5, "tokens": 40})
    answers = await asyncio.gather(*(gateway.chat() for _ in range(5)))
    assert sorted(answer.status for answer in answers) == [200, 200, 200, 503, 503]
    shed = next(answer for answer in answers if answer.status == 503)
    assert shed.error["code"] == "overloaded" and "its queue is full" in shed.error["message"]
    assert int(shed.headers["retry-after"]) >= 1
    records = [record for record in gateway.requests() if record.status == 503]
    assert [(record.outcome, record.attempts, record.charged_pico_usd) for record in records] == [
        ("rejected", 0, 0)
    ] * 2


async def test_who_waits_longer_than_its_deadline_is_shed(start):
    gateway = await start(
        {"max_in_flight": 1, "deadline_seconds": {"standard": 0.05}}, script={"gap_ms": 10, "tokens": 30}
    )
    answers = await asyncio.gather(*(gateway.chat() for _ in range(2)))
    assert sorted(answer.status for answer in answers) == [200, 503]
    [late] = [answer for answer in answers if answer.status == 503]
    assert "longer than the 0.05 s allowed" in late.error["message"]


async def test_a_client_that_leaves_while_it_waits_gives_its_place_to_the_next(start):
    gateway = await start({"max_in_flight": 1}, script={"gap_ms": 5, "tokens": 40})
    first = asyncio.create_task(gateway.chat())
    leaving = await gateway.connect()
    await until_in_flight(gateway)
    await leaving.send(gateway.request())
    await until_waiting(gateway, 1)
    leaving.close()
    for _ in range(500):
        if not gateway.gateway.queues.get("scripted-1").fair.waiting:
            break
        await asyncio.sleep(0.002)
    assert (await first).status == 200
    assert (await gateway.chat()).status == 200
    outcomes = sorted(record.outcome for record in gateway.requests())
    assert outcomes == ["cancelled", "ok", "ok"]
    state = json.loads((await gateway.ask(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")).body)["queues"]["scripted-1"]
    assert (state["in_flight"], state["tokens_in_flight"]) == (0, 0)


async def until_in_flight(gateway):
    while not gateway.gateway.queues.get("scripted-1").fair.load.in_flight:
        await asyncio.sleep(0.002)
