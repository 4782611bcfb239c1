"""A guardrail that ends an answer: each API's own end, however the upstream's pieces arrive, and nobody is blamed."""

import json
import logging
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.filtered_streams import APIS, MATCH, MODELS, POLICIES, Case, draw_case, fault_of
from tests.gateway.host_process import MODEL as ENGINE_MODEL

ALL_APIS = pytest.mark.parametrize("api", APIS)


@pytest.fixture
async def filtering(start_gateway, kit, upstream):
    """A gateway whose two models are one upstream's, under a policy each that blocks `blue moon`."""
    targets = [(model, [kit.http_target(upstream.url)]) for model in MODELS]
    return await start_gateway(kit.configuration(*targets, guardrails=POLICIES))


async def ended_well(gateway, case: Case) -> str:
    """Return what is wrong with how a case ended, for its client, on the record, or for its target."""
    answer = await gateway.ask(gateway.request(case.body, path=case.api))
    record = gateway.requests()[-1]
    told = (record.outcome, record.status, record.error_code, record.finish_reason)
    health = gateway.gateway.health_book.of(gateway.target(case.model, "u1").spec)
    return (
        fault_of(case, answer.body)
        or ("" if told == ("ok", 200, "", "content_filter") else f"record {told}")
        or ("" if record.verdicts and record.usage.output_tokens and record.cost_pico_usd else "no verdict or usage")
        or ("" if health.breaker is None or not health.breaker.failures_in_a_row else "the target is blamed")
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=st.randoms(use_true_random=False))
async def test_every_filtered_stream_ends_as_its_api_says(filtering, upstream, source):
    case = draw_case(source)
    upstream.then(*case.pieces)
    assert await ended_well(filtering, case) == ""


async def test_the_same_with_seeds(filtering, upstream):
    for seed in range(150):
        case = draw_case(Random(seed))
        upstream.then(*case.pieces)
        assert await ended_well(filtering, case) == "", (seed, case)


def blocking(keyword: str, **models) -> list[dict[str, object]]:
    settings = {"keywords": [keyword]}
    stage = {"name": "words", "detector": "deny", "direction": "output", "action": "block", "settings": settings}
    return [{"name": "p", "stages": [stage], **models}]


def body_for(api: str, model: str, *, is_streamed: bool = True) -> dict[str, object]:
    return {**Case(api, model, 1, 0, "", ()).body, "stream": is_streamed}


def end_of(api: str, whole: dict[str, Any]) -> tuple[str, str]:
    """Return a whole answer's text and how it ended."""
    if api == "/v1/messages":
        return "".join(block["text"] for block in whole["content"]), whole["stop_reason"]
    if api == "/v1/responses":
        texts = [part["text"] for item in whole["output"] for part in item["content"]]
        return "".join(texts), whole["incomplete_details"]["reason"]
    (choice,) = whole["choices"]
    return choice["message"]["content"] if "message" in choice else choice["text"], choice["finish_reason"]


@ALL_APIS
async def test_the_last_words_of_the_built_in_model(start_gateway, kit, api):
    gateway = await start_gateway(
        kit.configuration(("scripted-1", [kit.scripted()]), guardrails=blocking("can be measured"))
    )
    reply = "Hello! I am the scripted model. I answer every prompt with these same words, one token at a time, "
    case = Case(api, "scripted-1", 1, 0, reply + "so that everything around me ", ())
    assert fault_of(case, (await gateway.ask(gateway.request(case.body, path=api))).body) == ""
    record = gateway.requests()[-1]
    assert (record.outcome, record.finish_reason, record.usage.output_text) == ("ok", "content_filter", 27)


@ALL_APIS
@pytest.mark.parametrize("reply", ["Blue moon", "Blue moon, it rises", "A blue moon", "A blue moon rises"])
async def test_whole_answers_end_so_too(start_gateway, kit, upstream, api, reply):
    pools = ("scripted", [kit.scripted(reply=reply)]), ("served", [kit.http_target(upstream.url)])
    gateway = await start_gateway(kit.configuration(*pools, guardrails=blocking(MATCH)))
    answer = upstream.completion(reply)
    if api == "/v1/completions":
        answer["choices"] = [{"index": 0, "text": reply, "finish_reason": "stop"}]
    upstream.always(upstream.whole(answer))
    for model in ("scripted", "served"):
        given = await gateway.ask(gateway.request(body_for(api, model, is_streamed=False), path=api))
        text, reason = end_of(api, given.json)
        assert reason == ("refusal" if api == "/v1/messages" else "content_filter")
        # What an upstream sent whole is passed on, or taken out, as a whole.
        assert text in ({"A ": ("A ", "")}.get(reply[:2], ("",)))
        record = gateway.requests()[-1]
        assert (record.outcome, record.status, record.finish_reason) == ("ok", 200, "content_filter")
        assert record.usage.output_tokens and len(record.verdicts) == 1


@pytest.mark.parametrize("streams", [False, True])
async def test_an_answer_that_is_held_for_whoever_sees_it_whole_ends_with_every_choice(start_gateway, kit, streams):
    """A stage that must be asked about whole answers stops all choices, after their targets have ended them."""
    stage = {
        "name": "asked",
        "detector": "moderation",
        "direction": "output",
        "action": "block",
        "settings": {"url": "http://127.0.0.1:9/", "on_failure": "fail_closed", "timeout_ms": 200},
    }
    gateway = await start_gateway(
        kit.configuration(("m", [kit.scripted()]), guardrails=[{"name": "p", "stages": [stage]}]),
        guardrails_inward="127.0.0.0/8",
    )
    given = await gateway.chat(model="m", n=2, stream=streams)
    if streams:
        events = [json.loads(event[6:]) for event in given.body.decode().split("\n\n")[:-2]]
        choices = [choice for event in events for choice in event["choices"]]
        assert "".join(choice["delta"].get("content") or "" for choice in choices) == ""
        ends = [(choice["index"], choice["finish_reason"]) for choice in choices if choice["finish_reason"]]
    else:
        assert [choice["message"]["content"] for choice in given.json["choices"]] == ["", ""]
        ends = [(choice["index"], choice["finish_reason"]) for choice in given.json["choices"]]
    assert ends == [(0, "content_filter"), (1, "content_filter")]
    assert gateway.requests()[-1].finish_reason == "content_filter"


async def test_an_engine_hosts_answers_end_so_too(start_gateway, kit, engine_host, eventually):
    stage = {
        "name": "words",
        "detector": "deny",
        "direction": "output",
        "action": "block",
        "settings": {"expressions": {"letter": "[A-Za-z]"}},
    }
    target = {"name": "e1", "kind": "engine", "url": engine_host.url}
    gateway = await start_gateway(
        kit.configuration((ENGINE_MODEL, [target]), guardrails=[{"name": "p", "stages": [stage]}])
    )
    await eventually(lambda: all(one["state"] == "ready" for one in gateway.gateway.health()["engines"].values()), 60.0)
    for api in APIS:
        given = await gateway.ask(gateway.request(body_for(api, ENGINE_MODEL), path=api))
        assert (b"refusal" if api == "/v1/messages" else b"content_filter") in given.body.split(b"ended_by")[0]
        assert b'"ended_by":{"code":"content_filter"' in given.body
        record = gateway.requests()[-1]
        assert (record.outcome, record.finish_reason) == ("ok", "content_filter")
        assert record.usage.output_tokens


@pytest.mark.interpreted
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_fault_of_ours_while_an_answer_is_taken_is_blamed_on_no_target(
    filtering, upstream, monkeypatch, caplog, is_streamed
):
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("gateway.replies.reply.GeneratedReply.event", fail)
    monkeypatch.setattr("gateway.replies.reply.Reply.whole", fail)
    for _ in range(6):
        upstream.then(
            upstream.streamed(upstream.chunk("a", finish="stop"))
            if is_streamed
            else upstream.whole(upstream.completion())
        )
        answer = await filtering.chat(model=MODELS[0], stream=is_streamed)
        assert (answer.status, answer.error["code"]) == (500, "internal_error")
    records = filtering.requests()
    assert {(one.outcome, one.error_code) for one in records} == {("error", "internal_error")}
    told = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert [one.exc_info[0] for one in told] == [ZeroDivisionError] * 6
    assert [one.request_id for one in told] == [str(UUID(bytes=one.request_id)) for one in records]
    health = filtering.gateway.health_book.of(filtering.target(MODELS[0], "u1").spec)
    assert not health.is_away and len(upstream.requests) == 6
