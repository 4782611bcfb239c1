"""Service tiers of hosted providers, asked for and reported through LiteLLM."""

from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest

from tests.gateway.model_server import Upstream
from tests.gateway.providers import anthropic_words as anthropic
from tests.gateway.providers.host_process import litellm_target

pytestmark = pytest.mark.service

Start = Callable[..., Awaitable[Any]]
MESSAGES: Any = [{"role": "user", "content": "Hello"}]


def url(upstream: Upstream) -> str:
    return f"http://127.0.0.1:{upstream.port}"


async def ask(gateway: Any, **fields: Any) -> Any:
    asked = {"model": "hosted", "messages": MESSAGES, "max_tokens": 50, **fields}
    reply = await gateway.sdk().chat.completions.create(**asked)
    if fields.get("stream"):
        async for _ in reply:
            pass


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("usage", "tier"),
    [
        ({"service_tier": "standard"}, ""),
        ({"service_tier": "priority"}, "priority"),
        ({"speed": "fast"}, "fast"),
        ({}, ""),
    ],
)
async def test_anthropic_says_at_which_tier_it_answered(
    start_provider_gateway: Start, upstream: Upstream, stream: bool, usage: dict[str, Any], tier: str
) -> None:
    gateway = await start_provider_gateway(litellm_target("anthropic/claude-opus-4-8", url(upstream)))
    events = [anthropic.started(**usage), *anthropic.text(0, "Hello"), *anthropic.ended(**usage)]
    upstream.always(Upstream.streamed(*events) if stream else anthropic.message(**usage))
    await ask(gateway, stream=stream)
    (record,) = gateway.requests()
    assert record.service_tier == tier
    assert (record.cost_pico_usd is None) is bool(tier), "the card has no price for that tier"


async def test_fast_mode_is_asked_of_anthropic_alone(start_provider_gateway: Start, upstream: Upstream) -> None:
    gateway = await start_provider_gateway(litellm_target("anthropic/claude-opus-4-8", url(upstream)))
    upstream.always(anthropic.message())
    await ask(gateway, extra_body={"speed": "fast"})
    assert upstream.requests[0].json["speed"] == "fast"
    (record,) = gateway.requests()
    assert record.service_tier == "fast"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("asked", "answered", "tier"), [("flex", "flex", "flex"), ("priority", "default", "")])
async def test_openai_is_asked_for_a_tier_and_says_which_it_was(
    start_provider_gateway: Start, upstream: Upstream, stream: bool, asked: str, answered: str, tier: str
) -> None:
    gateway = await start_provider_gateway(litellm_target("openai/gpt-5", f"{url(upstream)}/v1"))
    chunks = [Upstream.chunk("Hi", service_tier=answered), Upstream.chunk(finish="stop", service_tier=answered)]
    events = [*chunks, Upstream.usage(3, 2), Upstream.event(b"[DONE]")]
    whole = Upstream.whole(Upstream.completion(service_tier=answered))
    upstream.always(Upstream.streamed(*events) if stream else whole)
    await ask(gateway, service_tier=asked, stream=stream)
    assert upstream.requests[0].json["service_tier"] == asked
    (record,) = gateway.requests()
    assert record.service_tier == tier
    with pytest.raises(openai.BadRequestError, match="speed"):
        await ask(gateway, extra_body={"speed": "fast"})
