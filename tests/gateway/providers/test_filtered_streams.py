"""A hosted provider's answer that a guardrail ends: each API's own end, by way of the provider host."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bench.filtered_streams import APIS, MODELS, POLICIES, Case, fault_of
from tests.gateway.model_server import Upstream
from tests.gateway.providers.host_process import ProviderHostProcess, litellm_target

pytestmark = pytest.mark.service


@pytest.mark.parametrize("is_burst", [False, True])
async def test_a_filtered_stream_ends_as_its_api_says(
    provider_host: ProviderHostProcess,
    start_gateway: Callable[..., Awaitable[Any]],
    kit: Any,
    eventually: Any,
    upstream: Upstream,
    is_burst: bool,
) -> None:
    targets = [(model, [litellm_target("openai/some", upstream.url)]) for model in MODELS]
    gateway = await start_gateway(kit.configuration(*targets, guardrails=POLICIES), providers_url=provider_host.url)
    await eventually(lambda: gateway.gateway.health()["provider_host"]["state"] == "ready")
    for api in (one for one in APIS if one != "/v1/completions"):
        events = [upstream.chunk(text) for text in ("Once in a ", "blue ", "moon")]
        events += [upstream.chunk(finish="stop"), upstream.usage(3, 5), upstream.event(b"[DONE]")]
        steps = [step for event in events for step in (upstream.piece(event), 0.01)]
        upstream.then(*([upstream.streamed(*events)] if is_burst else [upstream.stream_head(), *steps, upstream.END]))
        case = Case(api, MODELS[0], 1, 0, "Once in a ", ())
        answer = await gateway.ask(gateway.request(case.body, path=api))
        assert fault_of(case, answer.body) == "", answer.body
        record = gateway.requests()[-1]
        assert (record.outcome, record.status, record.finish_reason) == ("ok", 200, "content_filter")
