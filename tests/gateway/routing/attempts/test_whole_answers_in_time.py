"""A pool's bounds on tokens hold for answers that are wanted whole: these are asked for by a stream."""

import asyncio
import json

import pytest

from bench.regressions.answer_shapes import SHAPES
from contracts.metering.gaps import unpack_gaps
from tests.gateway.apis.batches.batch_kit import chat_line, create, ended, results
from tests.gateway.model_server import Upstream

BOUND = 0.3


def timed(kit, *targets, **failures):
    config = kit.configuration(("scripted-1", list(targets)))
    config["pools"][0]["failures"] = {"first_token_seconds": BOUND, **failures}
    return config


def answered(*pieces, pause=0.0):
    """Play a stream whose pieces come one after another."""
    script = [Upstream.stream_head()]
    for piece in pieces:
        script += [Upstream.piece(Upstream.chunk(piece)), pause]
    ends = Upstream.chunk(finish="stop"), Upstream.usage(3, len(pieces)), b"data: [DONE]\n\n"
    return [*script, *map(Upstream.piece, ends), Upstream.END]


async def test_a_target_that_hangs_is_left_for_the_next_within_the_bound(start_gateway, kit, new_upstream):
    hanging, ready = await new_upstream(), await new_upstream()
    ready.always(*answered("Hi", " there"))
    first, second = kit.http_target(hanging.url, "hanging", weight=1000), kit.http_target(ready.url, "ready")
    gateway = await start_gateway(timed(kit, first, second))
    answer = await gateway.chat()
    assert answer.status == 200
    assert answer.json["choices"][0]["message"]["content"] == "Hi there"
    assert [(one.replica, one.outcome, one.error_code) for one in gateway.attempts()] == [
        ("hanging", "error", "upstream_timeout"),
        ("ready", "ok", ""),
    ]


def reasons(caplog):
    """Return why targets failed, as the log tells the operators."""
    return [one.reason for one in caplog.records if one.getMessage() == "target failed"]


async def test_one_that_hangs_alone_is_logged_with_the_setting_that_was_reached(start_gateway, kit, upstream, caplog):
    gateway = await start_gateway(timed(kit, kit.http_target(upstream.url)))
    answer = await gateway.chat()
    assert answer.status == 504
    assert f"first_token_seconds is {BOUND}" in reasons(caplog)[-1]


async def test_the_next_model_of_a_route_answers_within_the_bound(start_gateway, kit, new_upstream):
    hanging, ready = await new_upstream(), await new_upstream()
    ready.always(Upstream.whole(Upstream.completion("Hi")))
    pools = [("slow", [kit.http_target(hanging.url)]), ("quick", [kit.http_target(ready.url, "u2")])]
    config = kit.configuration(*pools)
    config["pools"][0]["failures"] = {"first_token_seconds": BOUND}
    config["routes"] = [{"name": "chat", "choose": [{"model": "slow"}], "fallbacks": [{"model": "quick"}]}]
    gateway = await start_gateway(config)
    answer = await gateway.chat(model="chat")
    assert (answer.status, answer.json["choices"][0]["message"]["content"]) == (200, "Hi")


async def test_an_answer_that_progresses_is_not_cut_by_the_bound_on_its_first_token(start_gateway, kit, upstream):
    upstream.always(*answered(*"abcdefgh", pause=0.1))
    gateway = await start_gateway(timed(kit, kit.http_target(upstream.url)))
    answer = await gateway.chat()
    assert answer.json["choices"][0]["message"]["content"] == "abcdefgh"
    [record] = gateway.requests()
    assert not record.stream
    assert record.ttft_ns is not None
    assert record.ttft_ns < record.duration_ns / 2
    assert len(unpack_gaps(record.gaps)) == 7
    assert (record.usage.output_text, record.count_method) == (8, "reported")


async def test_one_that_stalls_on_its_way_is_answered_by_another(start_gateway, kit, new_upstream):
    stalling, ready = await new_upstream(), await new_upstream()
    stalling.always(Upstream.stream_head(), Upstream.piece(Upstream.chunk("once ")), Upstream.STALL)
    ready.always(*answered("Hi"))
    first, second = kit.http_target(stalling.url, "stalling", weight=1000), kit.http_target(ready.url, "ready")
    config = timed(kit, first, second, first_token_seconds=None, between_tokens_seconds=0.2)
    answer = await (await start_gateway(config)).chat()
    assert answer.json["choices"][0]["message"]["content"] == "Hi", "nothing of the answer that was left"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
async def test_the_assembled_answer_is_what_the_server_sends_whole(start_gateway, kit, upstream, shape):
    def answer(request):
        if not request.json.get("stream"):
            return Upstream.whole(shape.whole)
        assert request.json["stream_options"] == {"include_usage": True}
        return Upstream.streamed(*map(Upstream.event, shape.chunks), b"data: [DONE]\n\n")

    upstream.answering(answer)
    target = kit.http_target(upstream.url)
    body = {**kit.BODY, **shape.request}
    if shape.path == "/v1/completions":
        body["prompt"] = body.pop("messages")[0]["content"]
    plain = await start_gateway(kit.configuration(("scripted-1", [target])))
    bound = await start_gateway(timed(kit, target))
    whole = await plain.ask(kit.request(body, path=shape.path))
    assembled = await bound.ask(kit.request(body, path=shape.path))
    assert (assembled.status, assembled.json) == (200, whole.json)
    assert assembled.headers["content-type"] == whole.headers["content-type"]
    one, other = plain.requests()[0], bound.requests()[0]
    assert (one.usage, one.cost_pico_usd, one.finish_reason) == (other.usage, other.cost_pico_usd, other.finish_reason)


async def test_without_a_bound_the_request_goes_out_as_it_came(start_gateway, kit, upstream):
    upstream.always(Upstream.whole(Upstream.completion()))
    gateway = await start_gateway(kit.configuration(("scripted-1", [kit.http_target(upstream.url)])))
    await gateway.chat()
    assert upstream.requests[0].body == json.dumps(kit.BODY).encode()


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"refuses": ["stream"]}, {}),
        ({"refuses": ["stream_options"]}, {}),
        ({}, {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}),
        ({}, {"prompt_logprobs": 1}),
    ],
)
async def test_what_cannot_be_streamed_is_asked_for_whole_and_held_to_its_own_bound(
    start_gateway, kit, upstream, settings, fields, caplog
):
    target = {**kit.http_target(upstream.url), "settings": settings}
    upstream.then(2 * BOUND, Upstream.whole(Upstream.completion("late")))
    gateway = await start_gateway(timed(kit, target, whole_answer_seconds=4 * BOUND))
    good = await gateway.chat(**fields)
    assert good.json["choices"][0]["message"]["content"] == "late", "the bound on a first token says nothing of it"
    assert "stream" not in upstream.requests[0].json
    bad = await gateway.chat(**fields)
    assert bad.status == 504
    assert f"whole_answer_seconds is {4 * BOUND}" in reasons(caplog)[-1]


async def test_embeddings_are_held_to_the_bound_on_whole_answers(start_gateway, kit, upstream):
    config = timed(kit, kit.http_target(upstream.url), first_token_seconds=None, whole_answer_seconds=BOUND)
    gateway = await start_gateway(config)
    answer = await gateway.ask(kit.request({"model": "scripted-1", "input": "one"}, path="/v1/embeddings"))
    assert answer.status == 504


async def test_a_server_that_refuses_the_stream_is_asked_whole_from_then_on(start_gateway, kit, upstream):
    def answer(request):
        if request.json.get("stream"):
            error = {"message": "Your organization must be verified to stream this model.", "param": "stream"}
            return Upstream.whole({"error": error}, 400)
        return Upstream.whole(Upstream.completion())

    upstream.answering(answer)
    gateway = await start_gateway(timed(kit, kit.http_target(upstream.url)))
    assert [(await gateway.chat()).status for _ in range(3)] == [200] * 3
    assert [bool(request.json.get("stream")) for request in upstream.requests] == [True, False, False, False]
    assert [record.attempts for record in gateway.requests()] == [1] * 3


async def test_a_server_that_answers_whole_all_the_same_is_good(start_gateway, kit, upstream):
    upstream.always(Upstream.whole(Upstream.completion()))
    gateway = await start_gateway(timed(kit, kit.http_target(upstream.url)))
    assert (await gateway.chat()).json == Upstream.completion()


@pytest.mark.parametrize(
    ("status", "code"), [(400, "upstream_rejected"), (500, "upstream_error"), (429, "upstream_rate_limited")]
)
async def test_errors_before_the_first_token_mean_what_they_mean_whole(start_gateway, kit, upstream, status, code):
    upstream.always(Upstream.whole({"error": {"message": "no"}}, status))
    target = kit.http_target(upstream.url)
    found = []
    for config in (kit.configuration(("scripted-1", [target])), timed(kit, target)):
        gateway = await start_gateway(config)
        answer = await gateway.chat()
        said = answer.body.decode().replace(answer.headers["x-request-id"], "ID")
        found.append((answer.status, said, gateway.requests()[0].error_code))
    assert found[0] == found[1]
    assert found[0][2] == code


async def test_a_stream_that_breaks_off_is_no_answer(start_gateway, kit, upstream):
    upstream.always(Upstream.stream_head(), Upstream.piece(Upstream.chunk("once ")), Upstream.CLOSE)
    answer = await (await start_gateway(timed(kit, kit.http_target(upstream.url)))).chat()
    assert answer.status == 502
    assert "once" not in answer.body.decode()


async def test_a_late_first_token_of_a_whole_answer_is_hedged(start_gateway, kit, new_upstream):
    slow, quick = await new_upstream(), await new_upstream()
    slow.always(*[Upstream.stream_head(), 5.0])
    quick.always(*answered("Hi", " you"))
    first, second = kit.http_target(slow.url, "slow", weight=1000), kit.http_target(quick.url, "quick")
    hedge = {"least_seconds": 0.03, "share": 1.0}
    gateway = await start_gateway(timed(kit, first, second, first_token_seconds=20, hedge=hedge))
    pool = gateway.gateway.health_book.pool("scripted-1")
    for _ in range(20):
        pool.firsts.add(1_000_000)
    answer = await gateway.chat()
    assert answer.json["choices"][0]["message"]["content"] == "Hi you"
    assert [(one.replica, one.reason, one.outcome) for one in gateway.attempts()] == [
        ("slow", "first", "cancelled"),
        ("quick", "hedge", "ok"),
    ]


async def test_a_client_that_leaves_ends_the_call(start_gateway, kit, upstream, eventually):
    upstream.always(Upstream.stream_head(), Upstream.piece(Upstream.chunk("a")), Upstream.STALL)
    gateway = await start_gateway(timed(kit, kit.http_target(upstream.url)))
    client = await gateway.connect()
    await client.send(kit.request())
    await eventually(lambda: upstream.open and upstream.requests)
    await asyncio.sleep(0.02)
    client.close()
    await eventually(lambda: not upstream.open and gateway.requests())
    assert gateway.requests()[0].outcome == "cancelled"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_the_other_apis_are_bounded_alike(start_gateway, kit, new_upstream, path):
    hanging, ready = await new_upstream(), await new_upstream()
    ready.always(*answered("Hi", " you"))
    first, second = kit.http_target(hanging.url, "hanging", weight=1000), kit.http_target(ready.url, "ready")
    gateway = await start_gateway(timed(kit, first, second))
    body = {"model": "scripted-1", "max_tokens": 50, "messages": [{"role": "user", "content": "one"}]}
    if path == "/v1/responses":
        body = {"model": "scripted-1", "input": "one", "store": False}
    answer = await gateway.ask(kit.request(body, path=path))
    assert answer.status == 200
    assert "Hi you" in answer.body.decode()
    assert ready.requests[0].json["stream"] is True


async def test_a_cascade_judges_assembled_answers(start_gateway, kit, new_upstream):
    poor, good = await new_upstream(), await new_upstream()
    poor.always(*answered("I cannot help", " with that."))
    good.always(*answered("Of course", "."))
    config = kit.configuration(("poor", [kit.http_target(poor.url, "p")]), ("good", [kit.http_target(good.url, "g")]))
    for pool in config["pools"]:
        pool["failures"] = {"first_token_seconds": BOUND}
    entries = [{"model": "poor"}, {"model": "good"}]
    config["routes"] = [{"name": "chat", "choose": entries, "cascade": {"on_refusal": True}}]
    answer = await (await start_gateway(config)).chat(model="chat")
    assert answer.json["choices"][0]["message"]["content"] == "Of course."


async def test_a_batchs_lines_are_bounded_alike(start_gateway, kit, new_upstream):
    hanging, ready = await new_upstream(), await new_upstream()
    ready.always(*answered("Hi", " you"))
    first, second = kit.http_target(hanging.url, "hanging", weight=1000), kit.http_target(ready.url, "ready")
    client = (await start_gateway(timed(kit, first, second))).sdk()
    batch = await ended(client, await create(client, [chat_line("r1"), chat_line("r2")]))
    assert (batch.status, batch.request_counts.completed) == ("completed", 2)
    for line in (await results(client, batch.output_file_id)).values():
        assert line["response"]["body"]["choices"][0]["message"]["content"] == "Hi you"
