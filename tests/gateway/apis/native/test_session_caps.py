"""A limit by session or repository stops an agent's loop in mid-stream, at its amount of money, not a token later."""

import json
from decimal import Decimal
from typing import Any

import pytest

from contracts.pricing.money import usd
from tests.gateway.apis.native import provider

WORDS = 30
BODY: Any = {
    "model": "claude",
    "max_tokens": 200,
    "stream": True,
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"name": "Bash", "input_schema": {"type": "object"}}],
}
# Only output costs: 0.001 USD a token, so that 0.05 USD are 50 tokens.
PRICES = {
    "input_text": "0",
    "cache_read_text": "0",
    "cache_write_5m": "0",
    "cache_write_1h": "0",
    "output_text": "1000",
}


@pytest.fixture
def start(start_gateway, kit, upstream):
    """Start a gateway before a provider that streams 30 words, whatever it is asked, under one limit."""
    text = {"type": "text", "text": " ".join(["word"] * WORDS)}
    events = [event.replace(b'"output_tokens": 7', b'"output_tokens": 30') for event in provider.message_events(text)]
    upstream.always(upstream.streamed(*events))

    async def start(**limit: Any) -> Any:
        rule = {"id": "cap", "tenant": "acme", "metric": "usd", "amount_usd": "0.05", **limit}
        target = kit.http_target(upstream.url)
        target["settings"] = {"apis": ["messages"], **target["settings"]}
        config = kit.configuration(("claude", [target]), limits=[rule])
        config["prices"][0]["usd_per_mtok"] = PRICES
        return await start_gateway(config)

    return start


async def test_a_sessions_stream_is_cut_at_its_cap_and_the_next_turn_is_refused(start, kit):
    header, other = {"x-claude-code-session-id": "s1"}, {"x-claude-code-session-id": "s2"}
    gateway = await start(level="conversation")
    body = json.dumps(BODY).encode()
    answers = [await gateway.ask(kit.request(body, header, path="/v1/messages")) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert [answer.body.count(b"text_delta") for answer in answers] == [30, 20, 0]
    assert b"event: message_stop" in answers[1].body
    whole, cut, refused = gateway.requests()
    # All 30 words had come before the second was cut: 10 of them were made for nobody, and are on no bill.
    assert (whole.overdraft_tokens, cut.overdraft_tokens, refused.outcome) == (0, 10, "rejected")
    assert cut.finish_reason == "length" and "cap" in cut.limit and "cap" in refused.limit
    assert usd(sum(record.charged_pico_usd or 0 for record in gateway.requests())) == Decimal("0.05")
    assert (await gateway.ask(kit.request(body, other, path="/v1/messages"))).status == 200


async def test_a_repositorys_stream_is_cut_at_its_cap_and_others_go_on(start, kit):
    gateway = await start(level="tag", subject="repo=*", window="day", amount_usd="0.02")
    body = json.dumps(BODY).encode()
    asked = [kit.request(body, {"x-tollkeeper-repo": repo}, path="/v1/messages") for repo in ("a/b", "a/b", "a/c")]
    answers = [await gateway.ask(one) for one in asked]
    assert [answer.status for answer in answers] == [200, 429, 200]
    assert [answer.body.count(b"text_delta") for answer in answers] == [20, 0, 20]
    assert [usd(record.charged_pico_usd or 0) for record in gateway.requests()] == [Decimal("0.02"), 0, Decimal("0.02")]
