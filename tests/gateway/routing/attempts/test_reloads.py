"""A reload while requests wait: they end by what was promised to them, and leave nothing behind."""

from dataclasses import replace

import pytest


def renew(gateway, targets):
    """Put other targets in the place of the pool's, as a reload does."""
    directory = gateway.gateway.directory
    pool = replace(directory.snapshot.pools["scripted-1"], targets=targets)
    pools = {**directory.snapshot.pools, "scripted-1": pool}
    directory.snapshot = replace(directory.snapshot, revision=directory.snapshot.revision + 1, pools=pools)
    gateway.gateway._on_change()


async def waiting(gateway, kit, eventually):
    """Return two clients: one is being answered, for good, and the other waits for its place."""
    clients = []
    for number in range(2):
        client = await gateway.connect()
        await client.send(gateway.request(stream=True))
        load = gateway.gateway.queues.get("scripted-1").fair
        await eventually(lambda load=load, number=number: load.waiting if number else load.load.in_flight)
        clients.append(client)
    return clients


@pytest.fixture
async def reloading(start_gateway, kit, eventually):
    config = kit.configuration(
        ("scripted-1", [kit.scripted("a", weight=1000, first_ms=60_000), kit.scripted("b", first_ms=60_000)])
    )
    config["pools"][0]["queue"] = {"max_in_flight": 1}
    for target in config["pools"][0]["targets"]:
        target["region"] = "eu"
    gateway = await start_gateway(config)
    return gateway, *await waiting(gateway, kit, eventually)


async def test_a_request_that_waited_is_not_sent_where_its_target_has_been_moved_to(reloading):
    gateway, busy, patient = reloading
    book = gateway.gateway.health_book
    moved = replace(gateway.gateway.directory.snapshot.pools["scripted-1"].targets[0], region="us")
    renew(gateway, (moved,))
    busy.close()
    answer = await patient.answer()
    assert (answer.status, answer.error["code"]) == (502, "target_misconfigured")
    assert gateway.target("scripted-1", "a").running == 0
    health = book.of(moved)
    assert health.is_plain and health.breaker.failures_in_a_row == 0 and not book.is_degraded


async def test_a_request_that_waited_goes_to_the_target_that_stays_and_the_other_is_forgotten(reloading, eventually):
    gateway, busy, patient = reloading
    renew(gateway, gateway.gateway.directory.snapshot.pools["scripted-1"].targets[1:])
    busy.close()
    await eventually(lambda: gateway.target("scripted-1", "b").running)
    assert [health.id for health in gateway.gateway.health_book.targets] == ["b"]
    patient.close()
