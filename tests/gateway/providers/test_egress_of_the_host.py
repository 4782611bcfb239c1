"""The real host with LiteLLM in it: what an upstream leads to and no target names is not reached."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.gateway.model_server import Upstream
from tests.gateway.providers.host_process import litellm_target

pytestmark = pytest.mark.service

Start = Callable[..., Awaitable[Any]]


async def test_a_redirect_to_a_host_that_no_target_names_is_not_followed(
    start_provider_gateway: Start, upstream: Upstream, eventually: Any
) -> None:
    elsewhere = f"http://127.0.0.2:{upstream.port}/v1/messages"  # nobody listens there, and nobody is to find out
    upstream.always(upstream.whole({}, 307, f"location: {elsewhere}\r\n"))
    gateway = await start_provider_gateway(
        litellm_target("anthropic/claude-sonnet-4-5", f"http://127.0.0.1:{upstream.port}")
    )
    answer = await gateway.chat(model="hosted")
    assert (answer.status, answer.error["code"]) == (502, "egress_refused")
    assert "127.0.0.2" not in answer.body.decode()
