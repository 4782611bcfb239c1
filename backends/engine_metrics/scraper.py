"""Fetches one inference server's metrics every few seconds, and stores the last result."""

import asyncio
import logging
import re
import ssl
from dataclasses import dataclass
from typing import Final

from backends.engine_metrics.gauges import ServerGauges
from backends.engine_metrics.reading import read_gauges
from backends.http_client.http_origin import Origin
from backends.http_client.http_pool import HttpPool
from backends.http_client.http_timeouts import Timeouts
from contracts.errors import ConfigurationError, TollkeeperError, UpstreamBroken, UpstreamError

_log = logging.getLogger(__name__)

SCRAPE_SECONDS: Final = 5.0
MAX_PAGE_BYTES: Final = 8 << 20
_TIMEOUTS: Final = Timeouts(connect=2.0, first_byte=4.0, between=4.0, total=8.0)


@dataclass(frozen=True, slots=True)
class Scrape:
    """The result of the last scrape. `gauges` is `None` if the page could not be fetched or parsed; `failure` is the
    reason.

    `is_reached` is true if the server answered with a page, even an unreadable one.
    """

    gauges: ServerGauges | None = None
    failure: str = "not asked yet"
    is_reached: bool = False


class _Page:
    def __init__(self) -> None:
        self.status = 0
        self.pieces: list[bytes] = []
        self._bytes = 0

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status

    def on_body(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > MAX_PAGE_BYTES:
            raise UpstreamBroken(f"its page of metrics is larger than {MAX_PAGE_BYTES} bytes")
        self.pieces.append(data)


class Scraper:
    """Scrapes one URL. A failure is stored in `last` and logged when it changes; no exception leaves it."""

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        *,
        every_seconds: float = SCRAPE_SECONDS,
    ) -> None:
        """`url` is the page's whole URL with its query. Raises ConfigurationError if it is not valid."""
        address, _, query = url.partition("?")
        origin = Origin.parse(address)
        if not re.fullmatch(r"[!-~]*", query) or "#" in query:
            raise ConfigurationError(f"{url!r} is not a URL: its query contains characters that must be escaped")
        target = f"{origin.prefix or '/'}?{query}" if query else origin.prefix or "/"
        self.url = url
        self._every_seconds = every_seconds
        self._head = (
            f"GET {target} HTTP/1.1\r\nHost: {origin.authority}\r\n"
            "Accept: text/plain;version=0.0.4\r\nUser-Agent: tollkeeper\r\n\r\n"
        ).encode("ascii")
        self._pool = HttpPool(origin, _TIMEOUTS, tls, server_name)
        self.last = Scrape()

    async def run(self) -> None:
        """Scrape until cancelled."""
        while True:
            await self.scrape()
            await asyncio.sleep(self._every_seconds)

    async def scrape(self) -> Scrape:
        """Scrape once; store and return the result."""
        is_reached = False
        try:
            page = await self._fetch()
            is_reached = True
            found = Scrape(await asyncio.to_thread(read_gauges, page), "", is_reached)
        except TollkeeperError as error:
            found = Scrape(None, error.message, is_reached)
        if found.failure and found.failure != self.last.failure:
            _log.warning("engine metrics not read", extra={"url": self.url, "reason": found.failure})
        self.last = found
        return found

    async def close(self) -> None:
        """Close the connection."""
        await self._pool.close()

    async def _fetch(self) -> str:
        page = _Page()
        exchange = await self._pool.send(self._head, b"", page)
        await exchange.finished()
        if page.status != 200:
            raise UpstreamError(f"{self.url} answered {page.status}")
        return b"".join(page.pieces).decode("utf-8", "replace")
