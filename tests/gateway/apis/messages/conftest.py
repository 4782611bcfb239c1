"""Anthropic's SDK, pointed at a gateway."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anthropic
import pytest

from tests.gateway.conftest import NO_AUTHORITIES

USER: dict[str, Any] = {"role": "user", "content": "one two three"}
MESSAGE: dict[str, Any] = {"model": "scripted-1", "max_tokens": 100, "messages": [USER]}

Sdk = Callable[..., anthropic.AsyncAnthropic]


class Words:
    """Requests to begin with, for tests."""

    USER = USER
    MESSAGE = MESSAGE


@pytest.fixture
def words() -> type[Words]:
    return Words


@pytest.fixture
async def sdk() -> AsyncIterator[Sdk]:
    """Create clients of a gateway; `fields` are the SDK's."""
    clients: list[anthropic.AsyncAnthropic] = []

    def make(gateway: Any, **fields: Any) -> anthropic.AsyncAnthropic:
        base_url = gateway.base_url.removesuffix("/v1")
        http = anthropic.DefaultAsyncHttpxClient(verify=NO_AUTHORITIES)
        given: dict[str, Any] = {"api_key": "tk-" + "A" * 43, "max_retries": 0, "http_client": http, **fields}
        clients.append(anthropic.AsyncAnthropic(base_url=base_url, **given))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()
