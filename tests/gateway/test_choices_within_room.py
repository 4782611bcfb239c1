"""Many choices of one request share the room of its rules: no more is delivered or charged than there is room for."""

import asyncio
from typing import Any

import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from tests.gateway.apis.batches.batch_kit import chat_line, create, ended, results
from tests.gateway.conftest import Running
from tests.gateway.model_server import Upstream
from tests.patient_loop import PatientUvloop

MESSAGES = [{"role": "user", "content": "x"}]
CENTS = {"id": "bud", "tenant": "acme", "level": "tenant", "period": "total"}
OUTPUT = {"id": "lim", "tenant": "acme", "level": "tenant", "metric": "output_tokens", "window": "minute"}
USD = {"id": "lim", "tenant": "acme", "level": "tenant", "metric": "usd", "window": "minute"}
PRICE = {"model": "mock", "version": "v1", "usd_per_mtok": {"input_text": "0", "output_text": "1000"}}
RULES: dict[str, dict[str, list[dict[str, Any]]]] = {  # each has room for 50 output tokens
    "budget": {"budgets": [CENTS | {"amount_usd": "0.05"}]},
    "output_tokens": {"limits": [OUTPUT | {"amount": 50}]},
    "usd": {"limits": [USD | {"amount_usd": "0.05"}]},
}
MANY: dict[str, tuple[str, dict[str, Any]]] = {  # 128 choices or more, of a token at least
    "1024 prompts": ("/v1/completions", {"prompt": ["x"] * 1024, "max_tokens": 1}),
    "64 prompts, n 2": ("/v1/completions", {"prompt": ["x"] * 64, "n": 2, "max_tokens": 1}),
    "best_of": ("/v1/completions", {"prompt": "x", "best_of": 128, "n": 1, "max_tokens": 1}),
    "n": ("/v1/chat/completions", {"messages": MESSAGES, "n": 128, "max_tokens": 1}),
    "n, no max_tokens": ("/v1/chat/completions", {"messages": MESSAGES, "n": 128}),
    "a stream of n": ("/v1/chat/completions", {"messages": MESSAGES, "n": 128, "max_tokens": 1, "stream": True}),
    "a stream of prompts": ("/v1/completions", {"prompt": ["x"] * 128, "max_tokens": 1, "stream": True}),
}


def choices_in(body):
    prompts = len(body["prompt"]) if isinstance(body.get("prompt"), list) else 1
    return prompts * max(body.get("n") or 1, body.get("best_of") or 1)


def honest(up, request):
    """Answer as a server does that makes all the tokens it is allowed to, and no more."""
    body = request.json
    each = body.get("max_tokens") or body.get("max_completion_tokens") or 1000
    count, name = choices_in(body), "text" if "prompt" in body else "message"
    shown = count if not body.get("best_of") else count // body["best_of"] * (body.get("n") or 1)
    if body.get("stream"):
        piece: dict[str, Any] = {"text": "word "} if "prompt" in body else {"delta": {"content": "word "}}
        events = [
            up.event({"id": "x", "choices": [{"index": index, "finish_reason": None, **piece}]})
            for _ in range(each)
            for index in range(count)
        ]
        events += [up.chunk(finish="length", index=index) for index in range(count)]
        return up.streamed(*events, up.usage(10, each * count), up.event(b"[DONE]"))
    said = "word " * each
    choice = {"finish_reason": "length", name: said if name == "text" else {"role": "assistant", "content": said}}
    choices = [{"index": index, **choice} for index in range(shown)]
    usage = {"prompt_tokens": 10, "completion_tokens": each * count, "total_tokens": 10 + each * count}
    return up.whole(
        {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices} | {"usage": usage}
    )


@pytest.fixture
def start(start_gateway, kit, upstream):
    async def start(**rules):
        upstream.answering(lambda request: honest(upstream, request))
        target = kit.http_target(upstream.url)
        return await start_gateway(kit.configuration(("mock", [target]), prices=[PRICE], **rules))

    return start


async def ask(gateway, path, fields):
    return await gateway.ask(gateway.request({"model": "mock", **fields}, path=path))


@pytest.mark.parametrize("request_name", MANY)
@pytest.mark.parametrize("rule", RULES)
async def test_a_request_is_refused_unsent_if_a_rule_has_no_token_for_each_choice(start, upstream, rule, request_name):
    gateway = await start(**RULES[rule])
    path, fields = MANY[request_name]
    answer = await ask(gateway, path, fields)
    assert answer.status == 429 and not upstream.requests
    message, count = answer.error["message"], choices_in(fields)
    need = str(count) if rule == "output_tokens" else f"{count / 1000:.3f}"
    assert ("'bud'" if rule == "budget" else "'lim'") in message
    assert ("50 output tokens" if rule == "output_tokens" else "0.05 USD") in message
    assert f"{need}, the least for {count} choices" in message and "request fewer choices" in message
    [record] = gateway.requests()
    assert (record.status, record.attempts, record.charged_pico_usd or 0) == (429, 0, 0)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("choices", "each"), [(16, 3), (17, 2), (25, 2), (26, 1), (49, 1), (50, 1), (51, None)])
async def test_each_choice_is_told_its_share_of_the_room(start, upstream, rule, choices, each, is_streamed):
    gateway = await start(**RULES[rule])
    fields = {"messages": MESSAGES, "n": choices, "max_tokens": 100, "stream": is_streamed}
    answer = await ask(gateway, "/v1/chat/completions", fields)
    assert answer.status == (429 if each is None else 200), answer.body
    if each is not None:
        assert upstream.requests[-1].json["max_tokens"] == each
        assert answer.headers["x-tollkeeper-max-tokens"] == str(each)
        assert answer.body.count(b"word ") == each * choices
        [record] = gateway.requests()
        assert record.usage.output_tokens == each * choices and not record.overdraft_tokens
        assert not record.overdraft_pico_usd


@pytest.mark.parametrize("rule", RULES)
async def test_a_line_of_a_batch_with_too_many_choices_fails_at_once_and_the_others_pay_from_the_room(
    start, upstream, rule
):
    gateway = await start(**RULES[rule])
    client = gateway.sdk()
    many = chat_line("many", model="mock", n=128, max_tokens=1)
    few = chat_line("few", model="mock", n=20, max_tokens=1)
    done = await ended(client, await create(client, [many, few]))
    assert (done.request_counts.completed, done.request_counts.failed) == (1, 1)
    error = (await results(client, done.error_file_id))["many"]["response"]
    assert error["status_code"] == 429 and "the least for 128 choices" in error["body"]["error"]["message"]
    assert [request.json["n"] for request in upstream.requests] == [20]


async def test_a_fallback_and_a_retry_are_told_their_share_of_what_their_own_reservation_has(
    start_gateway, kit, upstream, new_upstream
):
    first = await new_upstream()
    first.always(first.whole({"error": {"message": "down"}}, 500))
    upstream.answering(lambda request: honest(upstream, request))
    targets = [kit.http_target(first.url, "u1"), kit.http_target(upstream.url, "u2")]
    gateway = await start_gateway(kit.configuration(("mock", targets), prices=[PRICE], **RULES["budget"]))
    for choices, each in ((10, 5), (10, None)):
        answer = await ask(gateway, "/v1/chat/completions", {"messages": MESSAGES, "n": choices, "max_tokens": 100})
        assert answer.status == (429 if each is None else 200), answer.body
    assert {request.json["max_tokens"] for request in [*first.requests, *upstream.requests]} == {5}
    assert len(upstream.requests) == 1
    assert sum(record.charged_pico_usd or 0 for record in gateway.requests()) == 50 * 10**9


ROOMS = (1, 2, 7, 15, 16, 17, 40, 50, 129, 300)
REQUESTS = st.fixed_dictionaries(
    {
        "prompts": st.integers(0, 20),  # 0: a chat
        "n": st.integers(1, 12),
        "is_best_of": st.booleans(),
        "max_tokens": st.none() | st.integers(1, 40),
        "stream": st.booleans(),
    }
)


def body_of(prompts, n, is_best_of, max_tokens, stream):
    """Return the path and the fields of a request."""
    fields = {"n": n, "max_tokens": max_tokens, "stream": stream}
    if not prompts:
        return "/v1/chat/completions", fields | {"messages": MESSAGES}
    if is_best_of and not stream:
        fields |= {"n": 1, "best_of": n}
    return "/v1/completions", fields | {"prompt": ["x"] * prompts}


def test_nothing_is_delivered_or_charged_beyond_the_room_whatever_is_asked(tmp_path, kit):
    """Each example is a user of its own, so that each finds its rule unused."""
    rules = {
        kind: {
            room: ({"amount_usd": str(room / 1000)} if kind != "output_tokens" else {"amount": room}) for room in ROOMS
        }
        for kind in RULES
    }
    models = [f"{kind}-{room}" for kind in RULES for room in ROOMS]
    limits, budgets = [], []
    for kind, amounts in rules.items():
        for room, amount in amounts.items():
            scope = {"id": f"{kind}-{room}", "level": "user", "subject": "*", "model": f"{kind}-{room}", **amount}
            if kind == "budget":
                budgets.append(CENTS | scope)
            else:
                limits.append((USD if kind == "usd" else OUTPUT) | scope)
    upstream, serial = Upstream(), iter(range(1_000_000))
    upstream.answering(lambda request: honest(upstream, request))
    with asyncio.Runner(loop_factory=PatientUvloop) as runner:
        runner.run(upstream.start())
        pools = [(model, [kit.http_target(upstream.url)]) for model in models]
        prices = [PRICE | {"model": model, "version": model} for model in models]
        path = tmp_path / "gateway.yaml"
        path.write_text(yaml.safe_dump(kit.configuration(*pools, prices=prices, limits=limits, budgets=budgets)))
        gateway = Gateway(
            GatewaySettings(data=tmp_path / "data", gateway_config=path, gateway_port=0, drain_seconds=0.2)
        )
        try:
            runner.run(gateway.start())
        except BaseException:
            runner.run(upstream.stop())
            raise
        running = Running(gateway)

        async def check(kind, room, asked):
            user, delivered = f"user-{next(serial)}", 0
            before = len(running.requests())
            for one in asked:
                path, fields = body_of(**one)
                sent = len(upstream.requests)
                answer = await ask(running, path, fields | {"model": f"{kind}-{room}", "user": user})
                assert answer.status in (200, 429), answer.body
                if answer.status == 429:
                    assert len(upstream.requests) == sent
                    continue
                delivered += answer.body.count(b"word ")
                most = upstream.requests[-1].json.get("max_tokens")
                assert most is None or one["max_tokens"] is None or most <= one["max_tokens"]
            records = running.requests()[before:]
            assert delivered <= room
            assert sum(record.usage.output_tokens or 0 for record in records) <= room
            assert sum(record.charged_pico_usd or 0 for record in records) <= room * 10**9
            assert not any(record.overdraft_tokens or record.overdraft_pico_usd for record in records)
            if all(record.status == 429 for record in records):
                assert choices_in(body_of(**asked[0])[1]) > room or room < 16

        @settings(max_examples=150, deadline=None, phases=[Phase.explicit, Phase.generate, Phase.shrink])
        @given(st.sampled_from(sorted(RULES)), st.sampled_from(ROOMS), st.lists(REQUESTS, min_size=1, max_size=3))
        def examples(kind, room, asked):
            runner.run(check(kind, room, asked))

        try:
            examples()
        finally:
            runner.run(running.close())
            runner.run(upstream.stop())
