"""The provider host as `tollkeeper up` runs it: started because the gateway has a target that needs it."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model_server import Upstream
from tests.gateway.providers import anthropic_words as anthropic
from tests.gateway.providers.host_process import KEY, KEY_REF, PYTHON, litellm_target
from tollkeeper.children import Backoff, Child
from tollkeeper.gateway_client import needs_provider_host
from tollkeeper.plan import Choices, provider_host
from tollkeeper.ports import Ports
from tollkeeper.provider_environment import ProviderEnvironment
from tollkeeper.provider_watch import ProviderWatch, WatchTimes

pytestmark = pytest.mark.service


async def test_a_target_that_needs_it_starts_the_host_and_is_served(
    provider_environment: None, start_gateway: Any, kit: Any, upstream: Upstream, eventually: Any, tmp_path: Path
) -> None:
    upstream.always(anthropic.message())
    target = litellm_target("anthropic/claude-sonnet-4-5", f"http://127.0.0.1:{upstream.port}")
    data = tmp_path / "installation"
    (data / "run").mkdir(parents=True)
    plain = await start_gateway(kit.configuration(("scripted-1", [kit.scripted()])))
    gateway = await start_gateway(kit.configuration(("hosted", [target])), data=data)
    assert await needs_provider_host(f"http://127.0.0.1:{plain.port}") is False
    assert await needs_provider_host(f"http://127.0.0.1:{gateway.port}") is True
    assert await needs_provider_host("http://127.0.0.1:1") is None
    environment = {**os.environ, "TOLLKEEPER_PROVIDERS_KEYS": KEY_REF, KEY_REF.removeprefix("env:"): KEY}
    spec = provider_host(Choices(data, Ports(), has_engine=False), environment, PYTHON)
    said: list[str] = []
    watch = ProviderWatch(
        lambda: needs_provider_host(f"http://127.0.0.1:{gateway.port}"),
        ProviderEnvironment(python=str(PYTHON)),
        lambda: Child(spec, data / "run", lambda name, line: said.append(line), Backoff()),
        lambda name, line: said.append(line),
        WatchTimes(poll_seconds=0.05),
    )
    watching = asyncio.create_task(watch.run())
    try:
        await eventually(lambda: gateway.gateway.health()["provider_host"]["state"] == "ready", within=120)
        reply = await gateway.chat(model="hosted", messages=[{"role": "user", "content": "Hello"}])
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await watch.stop(5)
    assert reply.status == 200
    assert any("starting the provider host" in line for line in said)
