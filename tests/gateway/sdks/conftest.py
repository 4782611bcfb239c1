"""A gateway in front of a real engine host, with a model that chats, one that calls tools, and an embedder."""

import asyncio
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from tests.gateway.host_process import MODEL, TOOLS_MODEL, HostProcess

CHAT, TOOLS, EMBEDDER = MODEL, TOOLS_MODEL, "minilm-l6-v2"
KEY = "tk-" + "A" * 43


@pytest.fixture(scope="session")
def host_url(engine_host: HostProcess) -> str:
    """Provide the URL of a `python -m backends.engine` with the three."""
    return engine_host.url


@pytest.fixture
async def engine(start_gateway, kit, eventually, host_url):
    """A gateway for the three models, all of them loaded."""
    target = {"name": "e1", "kind": "engine", "url": host_url}
    config = kit.configuration(*((name, [target]) for name in (CHAT, TOOLS, EMBEDDER)))
    for card in config["prices"]:
        card["usd_per_mtok"] |= {"cache_read_text": "0.1", "output_reasoning": "2"}
    gateway = await start_gateway(config)
    await eventually(
        lambda: all(one["state"] == "ready" for one in gateway.gateway.health()["engines"].values()), 120.0
    )
    return gateway


class Sdk:
    """A client of either kind: what is asked of the one that blocks runs in a thread."""

    def __init__(self, client: Any, *, is_async: bool) -> None:
        self.client = client
        self._is_async = is_async

    async def do(self, call: Callable[[Any], Any]) -> Any:
        """Create a call with the client."""
        return await call(self.client) if self._is_async else await asyncio.to_thread(call, self.client)

    async def all(self, call: Callable[[Any], Any]) -> list[Any]:
        """Create a call that gives a stream or pages, and return all of it."""
        if not self._is_async:
            return await asyncio.to_thread(lambda: list(call(self.client)))
        found = call(self.client)
        return [one async for one in (found if hasattr(found, "__aiter__") else await found)]

    async def final(self, call: Callable[[Any], Any], what: str) -> Any:
        """Read a stream that is a context to its end, and return what it says is the whole."""

        def block() -> Any:
            with call(self.client) as stream:
                for _ in stream:
                    pass
                return getattr(stream, what)()

        if not self._is_async:
            return await asyncio.to_thread(block)
        async with call(self.client) as stream:
            async for _ in stream:
                pass
            return await getattr(stream, what)()

    async def close(self) -> None:
        """Close the client."""
        closing = self.client.close()
        if closing is not None:
            await closing


@pytest.fixture(params=["sync", "async"])
async def openai_sdk(request, engine):
    """The openai SDK's client, of both kinds."""
    make = openai.AsyncOpenAI if request.param == "async" else openai.OpenAI
    sdk = Sdk(make(base_url=engine.base_url, api_key=KEY, max_retries=0), is_async=request.param == "async")
    yield sdk
    await sdk.close()


@pytest.fixture(params=["sync", "async"])
async def anthropic_sdk(request, engine):
    """The anthropic SDK's client, of both kinds."""
    make = anthropic.AsyncAnthropic if request.param == "async" else anthropic.Anthropic
    root = engine.base_url.removesuffix("/v1")
    sdk = Sdk(make(base_url=root, api_key=KEY, max_retries=0), is_async=request.param == "async")
    yield sdk
    await sdk.close()
