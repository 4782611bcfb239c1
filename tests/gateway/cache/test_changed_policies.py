"""Answers that were kept under other rules: another version of an API, other targets, a longer time, another card."""

import time
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.pricing.prices import NewPrice, PriceBook, price_card
from contracts.serving.caching import CachePolicy
from contracts.serving.configuration import ModelSpec, PoolSpec, Snapshot, TargetSpec
from gateway.apis.operations import CHAT
from gateway.cache.cached_answer import CachedAnswer
from gateway.cache.fingerprint import served_by
from gateway.cache.pricing import price_hit
from gateway.limits.estimates.counting import TokenEstimator
from gateway.request.charges.settlement import Settlement
from gateway.request.clock import Clock
from tests.backends.llm.engine_fake import FakeHost, builtin_hello

_SECOND_NS = 10**9


def behind(*targets: dict[str, Any]) -> bytes:
    made = tuple(TargetSpec(f"t{place}", "p", "engine", **fields) for place, fields in enumerate(targets))
    return served_by(ModelSpec("m", "p"), PoolSpec("p", made))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"settings": {"adapter": "legal-1"}}, {"settings": {"adapter": "legal-2"}}),
        ({"settings": {"params": {"a": 1}}}, {"settings": {"params": {"a": 2}}}),
        ({"settings": {"adapter": "legal-1"}}, {}),
        ({"url": "unix:///one.sock"}, {"url": "unix:///two.sock"}),
        ({"model": "one"}, {"model": "two"}),
        ({"provider": "one"}, {"provider": "two"}),
    ],
)
def test_what_may_answer_otherwise_is_another_request(one, other):
    assert behind(one) != behind(other)
    assert behind(one, other) == behind(other, one) != behind(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"settings": {"a": 1, "b": {"c": 1, "d": 2}}}, {"settings": {"b": {"d": 2, "c": 1}, "a": 1}}),
        ({"settings": {"timeouts": {"total": 9}}}, {"settings": {"timeouts": {"total": 8}}}),
        ({"settings": {"tls": {"ca_file": "a"}, "headers": {"x": "1"}}}, {"settings": {"credentials": {"k": "env:K"}}}),
        ({"settings": {"metrics_url": "http://127.0.0.1/metrics"}}, {}),
        ({"model": "one", "url": "http://127.0.0.1:1/v1"}, {"model": "one", "url": "http://127.0.0.1:2/v1"}),
        ({"key_ref": "env:ONE", "weight": 2, "region": "eu"}, {"key_ref": "env:TWO"}),
    ],
)
def test_another_way_to_the_same_model_is_the_same_request(one, other):
    assert behind(one) == behind(other) == behind(one, other)


async def reload(gateway, config, eventually):
    before = gateway.gateway.directory.snapshot
    gateway.gateway._settings.gateway_config.write_text(yaml.safe_dump(config))
    gateway.gateway.reload()
    await eventually(lambda: gateway.gateway.directory.snapshot is not before)


async def test_an_answer_of_a_target_that_was_told_otherwise_is_not_given(start_gateway, kit, eventually):
    said = []
    config = kit.configuration(("m", [kit.scripted(reply="old words")]))
    config["models"][0]["cache"] = {"mode": "exact"}
    gateway = await start_gateway(config)
    said.append(await gateway.chat(model="m"))
    config["pools"][0]["targets"] = [kit.scripted(reply="new words")]
    await reload(gateway, config, eventually)
    said.append(await gateway.chat(model="m"))
    assert [answer.headers["x-cache"] for answer in said] == ["miss", "miss"]
    assert b"new words" in said[1].body


async def test_versions_of_an_api_do_not_answer_for_each_other(start_gateway, kit, tmp_path, eventually):
    host = await FakeHost(tmp_path / "h.sock", models=[builtin_hello("ranker", kind="embed")]).start()
    try:
        config = kit.configuration(("ranker", [{"name": "e1", "kind": "engine", "url": host.url}]))
        config["models"][0]["cache"] = {"mode": "exact"}
        gateway = await start_gateway(config)
        await eventually(lambda: all(one["state"] == "ready" for one in gateway.gateway.health()["engines"].values()))
        body = {"model": "ranker", "query": "one", "documents": ["one two"]}
        paths = ("/v1/rerank", "/v2/rerank", "/rerank", "/v2/rerank")
        said = [await gateway.ask(gateway.request(body, path=path)) for path in paths]
    finally:
        await host.stop()
    assert [answer.headers["x-cache"] for answer in said] == ["miss", "miss", "hit", "hit"]
    assert ["document" in answer.json["results"][0] for answer in said] == [True, False, True, False]


async def test_a_shorter_time_holds_for_what_was_kept_before(start_gateway, kit, upstream, eventually):
    upstream.always(upstream.whole(upstream.completion()))
    config = kit.configuration(("m", [kit.http_target(upstream.url)]))
    config["models"][0]["cache"] = {"ttl_seconds": 3600}
    gateway = await start_gateway(config)
    answers = gateway.gateway._answers
    passed_ns = 0
    answers._clock = Clock(monotonic_ns=lambda: time.monotonic_ns() + passed_ns)

    async def asked(wanted: str = "") -> str:
        answer = await gateway.chat(headers={"Cache-Control": wanted}, model="m")
        return str(answer.headers["x-cache"])

    assert await asked() == "miss"
    passed_ns = 100 * _SECOND_NS
    assert await asked() == "hit"
    config["models"][0]["cache"] = {"ttl_seconds": 200}
    await reload(gateway, config, eventually)
    assert await asked() == "hit"
    config["models"][0]["cache"] = {"ttl_seconds": 60}
    await reload(gateway, config, eventually)
    assert await asked("max-age=3600") == "miss"
    assert await asked() == "hit"
    passed_ns += 3600 * _SECOND_NS
    state = answers.state()
    assert (state["entries"], state["bytes"]) == (0, 0)  # though nobody asks for it any more


def card(version: str, **more: int) -> Snapshot:
    prices: Any = {"input_text": Decimal(1), "output_text": Decimal(2)}
    prices |= {name: Decimal(price) for name, price in more.items()}
    return Snapshot(1, {}, {}, {}, PriceBook([price_card(NewPrice("m", version, prices))]))


def hit_of(snapshot: Snapshot, kept: CachedAnswer) -> int | None:
    life: Any = SimpleNamespace(
        who=Identity("acme"), started_at_ns=1_700_000_000 * _SECOND_NS, asked_tier="", operation=CHAT,
        snapshot=snapshot,
    )  # fmt: skip
    policy = CachePolicy(hit_price=Decimal("0.5"))
    return price_hit(life, kept, policy, Settlement(TokenEstimator()))[0].total_pico_usd


def test_a_new_card_prices_a_kept_answer_as_it_would_the_answer_itself():
    usage = Usage(10, cache_write_5m=100, output_text=5)
    ours = CachedAnswer(
        is_stream=False, end=b"{}", model="m", seller="engine", kind="engine", price_version="v1",
        cost_pico_usd=120 * 10**6, usage=usage,
    )  # fmt: skip
    assert [hit_of(card(version), ours) for version in ("v1", "v2")] == [60 * 10**6] * 2
    assert hit_of(card("v3", cache_write_5m=2), ours) == 110 * 10**6
    theirs = CachedAnswer(is_stream=False, end=b"{}", model="m", seller="p", kind="openai_http", usage=usage)
    assert hit_of(card("v2"), theirs) == 10 * 10**6, "the rest is billed"


@pytest.mark.parametrize(("region", "paid"), [("eu", 30 * 10**6), ("us", 10 * 10**6), ("", 10 * 10**6)])
def test_a_kept_answer_costs_what_its_region_asks(region, paid):
    cards = [
        price_card(
            NewPrice("m", name or "any", {"input_text": Decimal(usd), "output_text": Decimal(2 * usd)}, region=name)
        )
        for name, usd in (("", 1), ("eu", 3))
    ]
    usage = Usage(10, output_text=5)
    kept = CachedAnswer(
        is_stream=False, end=b"{}", model="m", seller="p", kind="openai_http", region=region, usage=usage
    )
    assert hit_of(Snapshot(1, {}, {}, {}, PriceBook(cards)), kept) == paid
