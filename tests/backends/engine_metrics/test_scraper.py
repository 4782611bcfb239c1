"""The fetch of a page of metrics: what fails is kept as a reason, and harms nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from backends.engine_metrics import scraper as scraper_module
from backends.engine_metrics.scraper import Scrape, Scraper
from contracts.errors import ConfigurationError

Serve = Callable[[bytes], Awaitable[Scraper]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server that answers everything with the same bytes, and a scraper of it."""
    started: list[tuple[asyncio.Server, Scraper]] = []

    async def start(reply: bytes) -> Scraper:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(reply)
                await writer.drain()

        async def tolerant(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await answer(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        server = await asyncio.start_server(tolerant, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        scraper = Scraper(f"http://127.0.0.1:{port}/metrics")
        started.append((server, scraper))
        return scraper

    yield start
    for server, scraper in started:
        await scraper.close()
        server.close()


def reply(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


async def test_a_page_becomes_gauges(serve: Serve) -> None:
    scraper = await serve(reply(b"tgi_queue_size 7\n"))
    assert scraper.last == Scrape()
    found = await scraper.scrape()
    assert found.gauges is not None
    assert (found.gauges.waiting, found.failure) == (7, "")
    assert (await scraper.scrape()).gauges == found.gauges  # on the same connection


async def test_a_failure_is_kept_with_its_reason(serve: Serve) -> None:
    scraper = await serve(reply(b"", b"404 Not Found"))
    found = await scraper.scrape()
    assert found.gauges is None
    assert "404" in found.failure


async def test_an_unknown_page_was_reached_all_the_same(serve: Serve) -> None:
    scraper = await serve(reply(b"go_goroutines 9\n"))
    found = await scraper.scrape()
    assert (found.gauges, found.is_reached) == (None, True)
    assert "llama.cpp" in found.failure


async def test_the_query_of_the_address_is_sent() -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(reply(b"llamacpp:requests_processing 1\n"))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    scraper = Scraper(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics?model=a%2Fb")
    assert (await scraper.scrape()).is_reached
    assert asked == [b"GET /metrics?model=a%2Fb HTTP/1.1\r\n"]
    await scraper.close()
    server.close()


@pytest.mark.parametrize("query", ["model=a b", "model=\r\nX: y", "model=é", "a#b"])
def test_a_query_that_is_not_escaped_is_refused(query: str) -> None:
    with pytest.raises(ConfigurationError, match="escaped"):
        Scraper(f"http://127.0.0.1:9/metrics?{query}")


async def test_nobody_there_is_a_reason_too() -> None:
    scraper = Scraper("http://127.0.0.1:9/metrics")
    found = await scraper.scrape()
    assert found.gauges is None
    assert found.failure
    await scraper.close()


async def test_too_large_a_page_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraper_module, "MAX_PAGE_BYTES", 16)
    exact = await serve(reply(b"tgi_queue_size 1"))
    assert (await exact.scrape()).gauges is not None
    over = await serve(reply(b"tgi_queue_size 10"))
    assert "larger than 16 bytes" in (await over.scrape()).failure


def test_an_address_that_cannot_be_asked_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError):
        Scraper("localhost:8000/metrics")
