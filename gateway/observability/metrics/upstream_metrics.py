"""Reads the metrics of third-party inference servers, at the `metrics_url` in a target's settings."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from backends.engine_metrics.scraper import SCRAPE_SECONDS, Scrape, Scraper
from backends.http_client.http_origin import Origin
from backends.llm.http.http_settings import read_tls
from contracts.errors import ConfigurationError
from contracts.serving.configuration import Snapshot, TargetSpec
from gateway.observability.metrics.pool_signals import FirstTokenTimes

_log = logging.getLogger(__name__)

SETTING: Final = "metrics_url"


class UpstreamMetrics:
    """Scrapes each target's server every five seconds. An error is stored in that target's scrape and does not affect
    others.
    """

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._seen: Snapshot | None = None
        self._scrapers: dict[str, Scraper] = {}
        self._refused: dict[str, Scrape] = {}
        self.first_tokens = FirstTokenTimes()

    @property
    def scrapes(self) -> Mapping[str, Scrape]:
        """Return each target's last scraped metrics, by the target's id."""
        return {name: scraper.last for name, scraper in self._scrapers.items()} | self._refused

    async def run(self) -> None:
        """Scrape until cancelled."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(SCRAPE_SECONDS)
        finally:
            for scraper in self._scrapers.values():
                await scraper.close()

    async def look(self) -> None:
        """Scrape all servers of the current configuration concurrently."""
        snapshot = self._snapshot()
        if snapshot is not self._seen:
            self._seen = snapshot
            await self._sync(snapshot)
        await asyncio.gather(*(scraper.scrape() for scraper in self._scrapers.values()))
        self.first_tokens.note(self.scrapes, time.monotonic())

    async def _sync(self, snapshot: Snapshot) -> None:
        """Keep the scrapers of unchanged targets; create and close the others."""
        wanted = {target.id: target for pool in snapshot.pools.values() for target in pool.targets if _url(target)}
        before, self._scrapers, self._refused = self._scrapers, {}, {}
        for name, target in wanted.items():
            kept = before.get(name)
            if kept is not None and kept.url == _url(target):
                self._scrapers[name] = before.pop(name)
                continue
            try:
                self._scrapers[name] = _scraper(target)
            except ConfigurationError as error:
                _log.warning("metrics_url cannot be used", extra={"target": name, "reason": error.message})
                self._refused[name] = Scrape(None, error.message)
        for scraper in before.values():
            await scraper.close()


def _url(target: TargetSpec) -> str:
    url = target.settings.get(SETTING)
    return url if isinstance(url, str) else ""


def _scraper(target: TargetSpec) -> Scraper:
    """Create a scraper; over TLS with the target's own `tls` settings. Raises ConfigurationError."""
    url = _url(target)
    if Origin.parse(url.partition("?")[0]).scheme != "https":
        return Scraper(url)
    tls, server_name = read_tls(target, is_https=True)
    return Scraper(url, tls, server_name)
