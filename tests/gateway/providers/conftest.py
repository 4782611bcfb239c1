"""A provider host as a process of its own, in its own environment, and gateways that use it."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.gateway.providers.host_process import PYTHON, ProviderHostProcess


@pytest.fixture(scope="session")
def provider_environment(require_service: Callable[[str, bool, str], None]) -> None:
    require_service("LiteLLM's environment", PYTHON.exists(), "make providers")


@pytest.fixture(scope="session")
def provider_host(
    provider_environment: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProviderHostProcess]:
    """One host for all tests of this process: its import of LiteLLM takes seconds."""
    host = ProviderHostProcess(tmp_path_factory.mktemp("provider-host"))
    yield host
    host.stop()


@pytest.fixture
def start_provider_gateway(
    provider_host: ProviderHostProcess, start_gateway: Callable[..., Awaitable[Any]], kit: Any, eventually: Any
) -> Callable[..., Awaitable[Any]]:
    """Start a data plane whose model `hosted` is served by the targets given, and wait until the host is reached."""

    async def start(*targets: dict[str, Any], **settings: Any) -> Any:
        config = kit.configuration(("hosted", list(targets)))
        running = await start_gateway(config, **{"providers_url": provider_host.url, **settings})
        await eventually(lambda: running.gateway.health()["provider_host"]["state"] == "ready")
        return running

    return start
