"""Kept answers of routes: a route's own policy, the model that answers, and the regions that none may leave."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.access.identity import Identity
from contracts.api.answer_parts import NOTHING_FOUND
from contracts.metering.usage import Usage
from contracts.pricing.prices import PriceBook
from contracts.serving.caching import CachePolicy
from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from gateway.apis.operations import CHAT
from gateway.cache.answer_cache import AnswerCache
from gateway.request.clock import Clock


def configuration(kit, upstream, **route: Any) -> dict[str, Any]:
    eu = kit.http_target(upstream.url, name="eu", region="eu", model="eu-1")
    us = kit.http_target(upstream.url, name="us", region="us", model="us-1")
    config = kit.configuration(("m", [eu]), ("n", [us]))
    config["routes"] = [{"name": "r", "choose": [{"model": "m"}], "cache": {"ttl_seconds": 60}, **route}]
    return dict(config)


async def test_a_route_keeps_answers_by_its_own_policy_and_its_models_do_not(start_gateway, kit, upstream):
    upstream.always(upstream.whole(upstream.completion()))
    gateway = await start_gateway(configuration(kit, upstream))
    said = [(await gateway.chat(model=name)).headers.get("x-cache") for name in ("r", "r", "m", "m")]
    assert said == ["miss", "hit", None, None]
    kept = gateway.requests()[1]
    assert (kept.cache, kept.route, kept.model, kept.requested_model) == ("hit", "r", "m", "r")


async def test_an_answer_of_a_fallback_is_not_kept_for_the_model_it_stands_in_for(start_gateway, kit, upstream):
    gateway = await start_gateway(configuration(kit, upstream, fallbacks=[{"model": "n"}]))
    for _ in range(2):
        upstream.then(upstream.whole({"error": {"message": "no"}}, status=503))
        upstream.then(upstream.whole(upstream.completion("from the fallback")))
        answer = await gateway.chat(model="r")
        assert (answer.status, answer.headers["x-cache"]) == (200, "miss")
    upstream.always(upstream.whole(upstream.completion()))
    assert [(await gateway.chat(model="r")).headers["x-cache"] for _ in range(2)] == ["miss", "hit"]


REGIONS = ("eu", "us", "ap", "")
pins = st.none() | st.frozensets(st.sampled_from(REGIONS[:3]), min_size=1)
steps = st.lists(st.tuples(pins, st.sampled_from(REGIONS), st.sampled_from("ab")), min_size=1, max_size=25)


class Replies:
    """What the cache asks of a reply."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.given: bytes | None = None

    def add_headers(self, headers: object) -> None: ...
    def copy_to(self, copy: object) -> None: ...

    def copied(self) -> tuple[bytes, bytes, tuple[()]]:
        return b"", b'{"from":"%b"}' % self.region.encode(), ()

    def replay(self, begun: bytes, end: bytes, served: object) -> None:
        self.given = end


class NoLimits:
    async def reserve_cost(self, *args: object, **more: object) -> None: ...

    def rate_headers(self, grant: None) -> tuple[()]:
        return ()


class NoCards:
    def card_of(self, *args: object, **more: object) -> None: ...


def drive(coroutine: Any) -> Any:
    """Run what never waits to its end."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the cache waited for something")


@given(steps)
def test_no_answer_leaves_the_regions_that_a_request_is_pinned_to(made: list[Any]) -> None:
    pool = PoolSpec("p", (TargetSpec("t", "p", "scripted"),))
    model = ModelSpec("m", "p", cache=CachePolicy())
    snapshot = Snapshot(1, {}, {"m": model}, {"p": pool}, PriceBook())
    cache = AnswerCache(1 << 20, NoLimits(), NoCards(), Clock())  # type: ignore[arg-type]
    for pin, region, word in made:
        body = b'{"messages":[{"role":"user","content":"%b"}]}' % word.encode()
        exchange = SimpleNamespace(body=body, header=lambda name: "")
        life = life_of(model, snapshot, pin)
        reply = Replies(region)
        life.exchange = exchange
        lookup = cache.begin(life)
        if drive(cache.answer(life, reply, lookup)):  # type: ignore[arg-type]
            assert reply.given is not None
            assert pin is None or reply.given[9:-2].decode() in pin
        else:
            life.last_attempt.target = TargetSpec("t", "p", "scripted", region=region)
        cache.end(life, reply, lookup, None)  # type: ignore[arg-type]
    assert cache.state()["under_way"] == 0


def life_of(model: ModelSpec, snapshot: Snapshot, pin: frozenset[str] | None) -> Any:
    attempt = SimpleNamespace(target=None, model=model, result=SimpleNamespace(finish_reason="stop"))
    return SimpleNamespace(
        cache=model.cache, model=model, snapshot=snapshot, regions=pin, who=Identity("acme"), key=None, api="chat",
        requested_model="m", error=None, is_hit=False, cache_outcome="", finish_reason="", last_attempt=attempt,
        request=SimpleNamespace(is_streamed=False), started_at_ns=0, asked_tier="", operation=CHAT,
        usage=Usage(input_text=1, output_text=1), findings=NOTHING_FOUND, guard=None,
        cost=SimpleNamespace(version="", total_pico_usd=None),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cache", "words"),
    [
        ({"mode": "fuzzy"}, "cache.mode"),
        ({"ttl_seconds": 0}, "cache.ttl_seconds"),
        ({"similarity": 1.01}, "cache.similarity"),
        ({"hit_price": "-0.1"}, "cache.hit_price"),
        ({"hit_price": "0.0000001"}, "cache.hit_price"),
        ({"warmth": 1}, "cache.warmth"),
    ],
)
async def test_a_policy_that_cannot_be_meant_is_refused_with_its_line(start_gateway, kit, upstream, cache, words):
    from contracts.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match="line ") as refused:
        await start_gateway(configuration(kit, upstream, cache=cache))
    assert words in refused.value.message


@pytest.mark.parametrize("stream", [False, True])
async def test_of_a_cascade_only_the_first_models_answer_is_kept(start_gateway, kit, upstream, stream):
    gateway = await start_gateway(configuration(kit, upstream, choose=[{"model": "m"}, {"model": "n"}], cascade={}))

    def answers(text, refusal=None):
        message = {"role": "assistant", "content": text, "refusal": refusal}
        whole = upstream.completion(text)
        whole["choices"][0]["message"] = message
        streamed = upstream.streamed(upstream.chunk(text), upstream.chunk(finish="stop"), upstream.usage(3, 2))
        return lambda request: streamed if request.json.get("stream") else upstream.whole(whole)

    upstream.answering(
        lambda request: answers("", "I cannot")(request) if request.json["model"] == "eu-1" else answers("b")(request)
    )
    escalated = [await gateway.chat(model="r", stream=stream) for _ in range(2)]
    assert [answer.headers["x-cache"] for answer in escalated] == ["miss", "miss"], escalated[0].body
    upstream.answering(answers("good enough"))
    first, again = [await gateway.chat(model="r", stream=stream) for _ in range(2)]
    assert (first.headers["x-cache"], again.headers["x-cache"]) == ("miss", "hit") and again.body == first.body


async def test_a_poor_answer_that_is_given_for_want_of_a_better_one_is_not_kept(start_gateway, kit):
    poor, away = kit.scripted("s", reply="I cannot help with that."), kit.scripted("l", fault="error")
    config = kit.configuration(("m", [poor]), ("n", [away]))
    config["routes"] = [{"name": "r", "choose": [{"model": "m"}, {"model": "n"}], "cascade": {}, "cache": {}}]
    gateway = await start_gateway(config)
    answers = [await gateway.chat(model="r", temperature=0) for _ in range(2)]
    assert [(answer.status, answer.headers["x-cache"]) for answer in answers] == [(200, "miss"), (200, "miss")]
