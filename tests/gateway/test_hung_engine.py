"""An engine host that is connected and does not answer: noticed, passed over, waited for, and left in the end."""

import asyncio
import logging

import pytest

from backends.llm.host import host_connection
from contracts.engine.wire import Submit
from tests.backends.llm.engine_fake import Play, builtin_hello
from tests.gateway.test_engine_faults import ask, new_host, start_with, states, streamed_text

__all__ = ["new_host", "start_with"]  # fixtures

HUNG = "engine host hung"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """The times of a gateway that notices in a tenth of a second, and moves requests after half of one."""
    for name, seconds in (("TICK", 0.02), ("HUNG", 0.1), ("HUNG_LOADING", 0.4), ("MOVE", 0.5), ("PING", 0.05)):
        monkeypatch.setattr(host_connection, f"_{name}_SECONDS", seconds)


async def test_a_hung_host_is_noticed_and_passed_over_and_serves_again_when_it_answers(
    start_with, new_host, eventually, caplog
):
    caplog.set_level(logging.INFO)
    first, second = await new_host(), await new_host()
    gateway = await start_with(first, second)
    first.freeze()
    await eventually(lambda: states(gateway) == ["hung", "ready"], 5.0)
    page = gateway.gateway.health()
    assert "engines_away" in page["degraded"] and page["status"] == "ready"
    assert "has not answered for" in page["engines"]["h0"]["detail"]
    metrics = (await gateway.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).body.decode()
    assert 'tollkeeper_engine_host_state{host="h0",state="hung"} 1' in metrics
    for _ in range(5):
        assert (await ask(gateway)).status == 200
    assert first.of(Submit) == []
    first.thaw()
    await eventually(lambda: states(gateway) == ["ready", "ready"], 5.0)
    assert gateway.gateway.health()["degraded"] == []
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [HUNG], "one warning for the change, none for its requests"


async def test_requests_at_a_pool_whose_only_host_is_hung_are_refused_at_once(start_with, new_host, eventually):
    host = await new_host()
    gateway = await start_with(host)
    host.freeze()
    await eventually(lambda: states(gateway) == ["hung"], 5.0)
    refused = await ask(gateway)
    assert (refused.status, refused.error["code"]) == (503, "engine_unavailable")
    assert "is hung" in gateway.reasons[-1]


async def test_an_answer_under_way_goes_on_when_its_host_comes_back_in_time(start_with, new_host, eventually):
    host = await new_host(Play(tokens=5, gap_seconds=0.1))
    gateway = await start_with(host)
    asked = asyncio.create_task(ask(gateway, stream=True))
    await eventually(lambda: host.of(Submit), 5.0)
    host.freeze()
    await eventually(lambda: states(gateway) == ["hung"], 5.0)
    host.thaw()
    answer = await asked
    assert streamed_text(answer) == " one two three four five" and answer.events[-1] == b"data: [DONE]"
    [record] = gateway.requests()
    assert (record.outcome, record.attempts, record.usage.output_tokens) == ("ok", 1, 5)


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_under_way_moves_to_a_host_with_the_same_model(start_with, new_host, eventually, streamed):
    first, second = await new_host(Play(tokens=5, gap_seconds=0.1)), await new_host()
    gateway = await start_with(first, second)
    asked = asyncio.create_task(ask(gateway, stream=streamed))
    await eventually(lambda: first._made, 5.0)
    first.freeze()
    answer = await asked
    text = streamed_text(answer) if streamed else answer.json["choices"][0]["message"]["content"]
    assert text == " one two three four five"
    [record] = gateway.requests()
    assert (record.outcome, record.replica, record.attempts, record.usage.output_tokens) == ("ok", "e2", 2, 5)


async def test_an_answer_without_another_host_ends_with_an_error_event(start_with, new_host, eventually):
    host = await new_host(Play(tokens=5, gap_seconds=0.1))
    gateway = await start_with(host, engine_hung_restart_seconds=0.3)
    asked = asyncio.create_task(ask(gateway, stream=True))
    await eventually(lambda: host._made, 5.0)
    host.freeze()
    answer = await asked
    assert b'"code":"upstream_broken"' in answer.events[-1]
    [record] = gateway.requests()
    assert record.outcome == "error" and record.usage.output_tokens >= 1


async def test_a_host_that_sends_anything_at_all_is_not_hung(start_with, new_host, eventually):
    host = await new_host(Play(tokens=40, gap_seconds=0.02))
    gateway = await start_with(host)
    asked = asyncio.create_task(ask(gateway))
    await eventually(lambda: host._made, 5.0)
    seen = set()
    host.answers_calls = False
    while not asked.done():
        seen.update(states(gateway))
        await asyncio.sleep(0.01)
    assert (await asked).status == 200 and seen == {"ready"}


async def test_a_host_that_still_loads_its_models_may_be_silent_for_longer(start_gateway, kit, new_host, eventually):
    host = await new_host(models=[builtin_hello(state="loading", progress=0.43)])
    target = {"name": "e1", "kind": "engine", "url": host.url}
    gateway = await start_gateway(kit.configuration(("tiny", [target])))
    await eventually(lambda: states(gateway) == ["loading"])
    host.freeze()
    await asyncio.sleep(0.25)
    assert states(gateway) == ["loading"]
    await eventually(lambda: states(gateway) == ["hung"], 5.0)
