"""What a hosted provider's failures cost: its own status decides, not the one that LiteLLM gives to its exceptions."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.gateway.model_server import Upstream
from tests.gateway.providers.host_process import litellm_target

pytestmark = pytest.mark.service

Start = Callable[..., Awaitable[Any]]
MODELS = {"anthropic": ("anthropic/claude-sonnet-4-5", ""), "mistral": ("mistral/mistral-small", "/v1")}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("provider", MODELS)
async def test_a_provider_s_status_is_free_and_its_silence_is_not(
    start_provider_gateway: Start, upstream: Upstream, subtests: Any, provider: str, is_streamed: bool
) -> None:
    model, path = MODELS[provider]
    target = litellm_target(model, f"http://127.0.0.1:{upstream.port}{path}")
    settings = {**target.get("settings", {}), "timeouts": {"first_token": 1.0}}
    gateway = await start_provider_gateway({**target, "settings": settings})
    error = {"type": "error", "error": {"type": "api_error", "message": "no"}}
    scripts: dict[str, Any] = {
        str(status): Upstream.whole(error, status) for status in (400, 404, 408, 409, 418, 429, 500, 502, 503, 504, 529)
    }
    upstream.always(scripts["500"])
    for _ in range(20):  # LiteLLM's first call of a provider reads its code, which may take longer than is waited
        if (await gateway.chat(model="hosted", stream=is_streamed)).status != 504:
            break
    scripts |= {"closed": Upstream.CLOSE, "silent": Upstream.STALL}
    for name, script in scripts.items():
        with subtests.test(name):
            upstream.always(script)
            before = len(gateway.requests())
            reply = await gateway.chat(model="hosted", stream=is_streamed)
            assert reply.status >= 400
            [record] = gateway.requests()[before:]
            if name.isdecimal():
                assert (record.cost_basis, record.cost_pico_usd, record.charged_pico_usd) == ("free", 0, 0), reply.body
            else:
                assert (record.cost_basis, record.count_method) == ("price_card", "estimate"), reply.body
                assert record.cost_pico_usd > 0
