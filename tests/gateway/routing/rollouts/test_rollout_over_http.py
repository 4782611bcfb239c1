"""A rollout as callers of a real gateway meet it: who gets which model, what is copied, and how it ends by itself."""

import asyncio
import json
import shutil
from uuid import UUID

import pytest

from contracts.errors import ConfigurationError
from contracts.serving.rollouts import PLATFORM_TENANT

MICRO = 1_000_000  # pico-USD: an input token at 1 USD per million
FAST = {"window_seconds": 60, "min_requests": 10}


@pytest.fixture
def start(start_gateway, kit):
    """Start a gateway with a route to `old`, which `new` is tried beside."""

    async def start(
        new=None,
        *,
        data=None,
        old=None,
        targets=None,
        pins=(),
        limits=(),
        tenants=(),
        guardrails=(),
        queue=None,
        **rollout,
    ):
        config = kit.configuration(
            ("old", old or [kit.scripted("o", tokens=4)]),
            ("new", targets or [kit.scripted("n", **(new or {"tokens": 4}))]),
            limits=list(limits),
            tenants=list(tenants),
            guardrails=list(guardrails),
        )
        if queue is not None:
            config["pools"][1]["queue"] = queue
        config["routes"] = [{"name": "assistant", "choose": [{"model": "old"}], "regions": list(pins)}]
        about = {"name": "try-new", "route": "assistant", "incumbent": "old", "candidate": "new"}
        config["rollouts"] = [{**about, "guards": FAST, **rollout}]
        settings = {} if data is None else {"data": data}
        return await start_gateway(config, **settings)

    return start


async def ask(gateway, conversation, **more):
    headers = {"X-Tollkeeper-Conversation-Id": conversation}
    answer = await gateway.chat(model="assistant", headers=headers, **more)
    assert answer.status == 200, answer.body
    return answer


def arms(gateway):
    return [(record.arm, record.model) for record in gateway.requests() if record.arm != "shadow"]


async def settled(gateway):
    """Wait for the copies in progress."""
    for tasks in gateway.gateway.rollouts.shadows._under_way.values():
        await asyncio.gather(*tasks)


async def test_a_conversation_stays_with_its_arm_and_the_record_says_which(start):
    gateway = await start(percent=50)
    for number in range(24):
        await ask(gateway, f"c{number % 12}", stream=bool(number % 2))
    found = arms(gateway)
    assert set(found) == {("incumbent", "old"), ("candidate", "new")}
    assert found[:12] == found[12:], "who is in stays in"
    assert {record.rollout for record in gateway.requests()} == {"try-new"}
    said = json.loads(gateway.requests()[0].route_decision)["rollout"]
    assert said == {"id": "try-new", "arm": found[0][0], "percent": 50.0}


async def test_only_the_tenants_that_may_take_part_do_and_a_model_asked_by_name_never_does(start, kit):
    gateway = await start(percent=100, not_tenants=["acme"])
    await ask(gateway, "c")
    assert arms(gateway) == [("", "old")]
    gateway = await start(percent=100)
    assert (await gateway.chat(model="old")).status == 200
    assert arms(gateway) == [("", "old")]


async def test_where_the_candidate_fails_the_incumbent_answers_and_the_failure_counts(start):
    gateway = await start(new={"fault": "error"}, percent=100)
    await ask(gateway, "c")
    [record] = gateway.requests()
    assert (record.arm, record.model, record.outcome) == ("candidate", "old", "ok")
    [spec] = gateway.gateway.rollouts._live
    seen = gateway.gateway.rollouts.book.observed(spec)
    assert (seen.candidate.requests, seen.candidate.errors, seen.incumbent.requests) == (1, 1, 0)


async def test_a_candidate_that_always_fails_harms_no_caller_and_is_told_of_each_time(start):
    gateway = await start(new={"fault": "error"}, percent=100)
    for number in range(14):  # more than the retry budget of a pool bears
        await ask(gateway, f"c{number}")
    [spec] = gateway.gateway.rollouts._live
    seen = gateway.gateway.rollouts.book.observed(spec)
    assert (seen.candidate.requests, seen.candidate.errors) == (14, 14)


async def test_waiting_for_a_candidate_counts_and_so_does_being_sent_away_for_want_of_room(start):
    queue = {"max_in_flight": 1, "max_waiting": 1}
    gateway = await start(new={"tokens": 4, "first_ms": 200}, percent=100, queue=queue)
    await asyncio.gather(*(ask(gateway, f"c{number}", stream=True) for number in range(4)))
    [spec] = gateway.gateway.rollouts._live
    seen = gateway.gateway.rollouts.book.observed(spec).candidate
    assert (seen.requests, seen.errors) == (4, 2), "the incumbent had to answer twice"
    assert {(record.arm, record.outcome) for record in gateway.requests()} == {("candidate", "ok")}
    slowest = seen.ttft_ms.quantile()
    assert slowest is not None and slowest > 350, "one waited while the other was answered"


async def test_a_slow_candidate_is_rolled_back_by_itself_and_stays_so_over_a_restart(start, tmp_path):
    data = tmp_path / "one"
    slow = {"tokens": 4, "first_ms": 150}
    gateway = await start(new=slow, data=data, percent=50)
    for round_ in range(8):
        await asyncio.gather(*(ask(gateway, f"c{number}", stream=True) for number in range(8)))
        if round_ == 0:
            assert ("candidate", "new") in arms(gateway)
    rollouts = gateway.gateway.rollouts
    [spec] = rollouts._live
    async with asyncio.timeout(20):  # it looks every second
        while not rollouts.book.stopped(spec):
            await asyncio.sleep(0.05)
    assert "ttft p95 (ms) of the candidate is" in rollouts.book.stopped(spec)
    shown = gateway.gateway.health()
    assert shown["rollouts"]["live"]["try-new"]["stopped"] == rollouts.book.stopped(spec)
    assert "rollout_stopped" in shown["degraded"]
    before = len(gateway.requests())
    for number in range(8):
        await ask(gateway, f"c{number}")
    assert set(arms(gateway)[before:]) == {("incumbent", "old")}, "the same conversations, now all the incumbent's"
    async with asyncio.timeout(20):
        while not (data / "rollouts.json").exists():
            await asyncio.sleep(0.05)
    for name, percent, is_stopped in (("again", 50, True), ("changed", 49, False)):
        (tmp_path / name).mkdir()
        shutil.copy(data / "rollouts.json", tmp_path / name)
        restarted = (await start(new=slow, data=tmp_path / name, percent=percent)).gateway.rollouts
        assert bool(restarted.book.stopped(restarted._live[0])) is is_stopped, "another entry is another try"


async def test_a_copy_is_the_platforms_is_never_returned_and_counts_in_no_limit(start, kit):
    limit = {"tenant": "acme", "level": "tenant", "metric": "requests", "window": "day", "amount": 2}
    shadow = {"percent": 100, "max_usd_per_day": "1"}
    gateway = await start(new={"reply": "something else altogether"}, limits=[limit], shadow=shadow)
    answers = [await ask(gateway, "c"), await ask(gateway, "c", stream=True)]
    await settled(gateway)
    assert all(b"something else" not in answer.body for answer in answers)
    copies = [record for record in gateway.requests() if record.arm == "shadow"]
    originals = [record for record in gateway.requests() if record.arm != "shadow"]
    assert [(one.arm, one.model, one.who.tenant) for one in originals] == [("incumbent", "old", "acme")] * 2
    assert {(one.model, one.who.tenant, one.rollout, one.priority) for one in copies} == {
        ("new", PLATFORM_TENANT, "try-new", "batch")
    }
    assert [one.cost_pico_usd for one in copies] == [(3 + 3 * 2) * MICRO] * 2
    assert [one.stream for one in copies] == [False, True], "timed as the original was"
    said = [json.loads(one.route_decision)["shadow"] for one in copies]
    assert [UUID(one["of"]).bytes for one in said] == [one.request_id for one in originals]
    assert all(one["by"] == "words" and one["similarity"] < 0.5 and one["same"] is False for one in said)
    assert gateway.gateway.rollouts.shadows.made == 2


async def test_a_copy_meets_no_guardrail_a_second_time_and_names_nobodys_end_user(start):
    words = {
        "name": "words",
        "detector": "deny",
        "direction": "both",
        "action": "flag",
        "settings": {"keywords": ["one"]},
    }
    everybodys = {"name": "p", "stages": [words]}
    gateway = await start(guardrails=[everybodys], shadow={"percent": 100, "max_usd_per_day": "1"})
    await ask(gateway, "c", user="ann", messages=[{"role": "user", "content": "one two three"}])
    await settled(gateway)
    original, copied = gateway.requests()
    assert (original.arm, original.who.user, bool(original.verdicts)) == ("incumbent", "ann", True)
    assert (copied.arm, copied.who.user, copied.verdicts, copied.outcome) == ("shadow", "", [], "ok")


async def test_copies_stop_at_the_days_money_at_their_number_and_where_there_is_no_price(start):
    gateway = await start(shadow={"percent": 100, "max_usd_per_day": "0.000020"})
    for _ in range(4):
        await ask(gateway, "c", max_tokens=4)
        await settled(gateway)
    shadows = gateway.gateway.rollouts.shadows
    assert (shadows.made, shadows.dropped["no money"]) == (1, 3), "3 + 4 x 2 micro-USD each, and 20 is the most"
    gateway = await start(new={"first_ms": 5_000}, shadow={"percent": 100, "max_usd_per_day": "1", "max_concurrent": 1})
    for _ in range(3):
        await ask(gateway, "c")
    assert gateway.gateway.rollouts.shadows.dropped == {"no room": 2}
    assert gateway.gateway.health()["rollouts"]["copies_dropped"] == {"no room": 2}


async def test_what_was_asked_in_another_apis_words_is_copied_as_the_chat_that_the_model_was_sent(start):
    gateway = await start(shadow={"percent": 100, "max_usd_per_day": "1"})
    said = {"model": "assistant", "max_tokens": 9, "messages": [{"role": "user", "content": "one two three"}]}
    for is_streamed in (False, True):
        answer = await gateway.ask(gateway.request({**said, "stream": is_streamed}, path="/v1/messages"))
        assert answer.status == 200, answer.body
        await settled(gateway)
    asked = {"model": "assistant", "max_output_tokens": 9, "input": "one two three", "store": False}
    assert (await gateway.ask(gateway.request(asked, path="/v1/responses"))).status == 200
    await settled(gateway)
    copies = [record for record in gateway.requests() if record.arm == "shadow"]
    assert [(one.api, one.outcome, one.usage.input_tokens) for one in copies] == [("chat.completions", "ok", 3)] * 3
    alike = [json.loads(one.route_decision)["shadow"] for one in copies]
    assert [(one["same"], one["similarity"]) for one in alike] == [(True, 1.0)] * 3


async def test_who_has_every_request_audited_is_not_copied(start):
    audited = [{"id": "acme", "audits_requests": True}]
    gateway = await start(tenants=audited, percent=50, shadow={"percent": 100, "max_usd_per_day": "1"})
    for number in range(6):
        await ask(gateway, f"c{number}")
        await settled(gateway)
    assert {record.arm for record in gateway.requests()} == {"incumbent", "candidate"}


async def test_nothing_of_a_request_goes_where_it_may_not_go(start, start_gateway, kit):
    here, there = kit.scripted("here", tokens=4) | {"region": "eu"}, kit.scripted("there", tokens=4) | {"region": "us"}
    pinned = {"old": [here], "pins": ["eu"], "shadow": {"percent": 100, "max_usd_per_day": "1"}}
    gateway = await start(targets=[there, here], percent=50, **pinned)
    for number in range(12):
        await ask(gateway, f"c{number}")
        await settled(gateway)
    found = gateway.requests()
    assert {record.arm for record in found} == {"incumbent", "candidate", "shadow"}
    assert {record.region for record in found} == {"eu"}
    with pytest.raises(ConfigurationError, match="stay in eu, and 'new' has no target there; its targets are in us"):
        await start(targets=[there], percent=50, **pinned)


@pytest.mark.parametrize(
    ("rollout", "words"),
    [
        ({"route": "gone", "percent": 5}, "on route 'gone', which does not exist"),
        ({"incumbent": "gone", "percent": 5}, "chooses no incumbent 'gone'"),
        ({"candidate": "gone", "percent": 5}, "tries 'gone', which is not served"),
        ({"candidate": "old", "percent": 5}, "are both 'old'"),
        ({}, "needs steps, a shadow, or both"),
        ({"percent": 0}, "percent"),
        ({"percent": 101}, "percent"),
        ({"percent": 5, "shadow": {"percent": 5}}, "max_usd_per_day"),
        ({"percent": 5, "guards": {"window_seconds": 9}}, "window_seconds"),
        ({"percent": 5, "colour": "red"}, "there is no such field"),
    ],
)
async def test_a_rollout_that_cannot_stand_stops_the_start_by_name_and_line(start, rollout, words):
    with pytest.raises(ConfigurationError, match=words) as refused:
        await start(**rollout)
    assert "line" in refused.value.message and "rollouts" in refused.value.message


async def test_a_stop_does_not_wait_for_a_slow_candidates_copies(start):
    gateway = await start(new={"first_ms": 600_000}, shadow={"percent": 100, "max_usd_per_day": "1"})
    await ask(gateway, "c1")
    async with asyncio.timeout(60):
        await gateway.gateway.drain(notice_seconds=0.0)
    copies = [record for record in gateway.requests() if record.arm == "shadow"]
    assert [(one.outcome, one.model) for one in copies] == [("cancelled", "new")]
