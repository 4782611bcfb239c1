"""A pair of gateways before one model server."""

import pytest

from tests.gateway.request.pair import RULES, Pair, WatchedDispatcher


@pytest.fixture(autouse=True)
def watched_dispatcher(monkeypatch):
    """Let every gateway have a dispatcher that a test can watch."""
    monkeypatch.setattr("gateway.process.app.Dispatcher", WatchedDispatcher)


@pytest.fixture
async def pair(start_gateway, kit, upstream, monkeypatch):
    """A pair before one server, each with a connection that is idle and a key that is known."""

    async def start(*urls, **more):
        names = [f"u{number}" for number in range(len(urls) or 1)]
        targets = [
            kit.http_target(url, name, timeouts={"first_byte": 0.2, "between": 0.2})
            for url, name in zip(urls or (upstream.url,), names, strict=True)
        ]
        config = kit.configuration(("mock", targets), **{**RULES, **more})
        found = Pair(await start_gateway(config), await start_gateway(config), monkeypatch)
        upstream.then(upstream.whole(upstream.completion()))
        upstream.then(upstream.whole(upstream.completion()))
        await found.ask()
        assert found.taken == [False], "the first of a key has no plan yet"
        found.taken.clear()
        return found

    return start
