"""A pool that is chosen from by cost, through the whole gateway: affinity, what health shows, and what records say."""

import asyncio
import json
from uuid import UUID

import pytest


@pytest.fixture
async def choosing(start_gateway, kit):
    """A gateway whose pool has three scripted replicas and states no policy."""
    targets = [kit.scripted(f"s{number}", tokens=3, first_ms=100) for number in range(3)]
    configuration = kit.configuration(("scripted-1", targets))
    del configuration["pools"][0]["policy"]
    return await start_gateway(configuration, routing_sample_share=1.0)


def messages(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def test_a_conversation_stays_and_others_are_spread(choosing):
    async def say(number: int, turn: int) -> str:
        began = f"conversation {number} begins like this. " * 40
        answer = await choosing.chat(messages=messages(began + "more " * turn))
        asked = UUID(answer.headers["x-request-id"]).bytes
        [record] = [record for record in choosing.requests() if record.request_id == asked]
        return str(record.replica)

    first = await asyncio.gather(*[say(number, 0) for number in range(3)])
    assert set(first) == {"s0", "s1", "s2"}, "each sees that the others are in progress"
    for turn in range(1, 4):
        assert [await say(number, turn) for number in range(3)] == first


async def test_health_shows_what_is_known_of_replicas_and_records_how_the_alternatives_stood(choosing):
    await choosing.chat(messages=messages("one two three " * 50))
    pool = choosing.gateway.health()["routing"]["pools"]["scripted-1"]
    assert (pool["policy"], pool["decisions"], set(pool["replicas"])) == ("cost", 1, {"s0", "s1", "s2"})
    assert all(one["running"] == 0 and one["cache"] == "assumed" for one in pool["replicas"].values())
    [record] = choosing.requests()
    said = json.loads(record.route_decision)["replica"]
    assert (said["policy"], said["chosen"], said["outcome"]["replica"]) == ("cost", record.replica, record.replica)
    assert set(said["predicted_ms"]) == {"s0", "s1", "s2"}
    assert "one two" not in record.route_decision


async def test_a_replica_that_fails_is_followed_by_another_and_then_left_alone(start_gateway, kit):
    targets = [kit.scripted("bad", fault="error"), kit.scripted("good")]
    configuration = kit.configuration(("scripted-1", targets))
    configuration["pools"][0]["policy"] = "least_outstanding"
    gateway = await start_gateway(configuration)
    for _ in range(6):
        assert (await gateway.chat()).status == 200
    assert [attempt.replica for attempt in gateway.attempts()].count("bad") == 1
    assert {record.replica for record in gateway.requests()} == {"good"}
