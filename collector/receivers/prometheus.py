"""Prometheus scrape: reads the pages of configured targets every few seconds and converts them to OTLP metrics.

dcgm-exporter's metrics are renamed and converted to OpenTelemetry's hardware conventions; vLLM's old names are replaced
by their newer ones. A counter becomes a cumulative sum, a histogram one point with buckets, a summary one with
quantiles.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Final
from urllib.request import Request, urlopen

from backends.telemetry.prometheus_metrics import metrics_request
from collector.counters import Counters
from collector.pipeline import Pipeline
from contracts.errors import TollkeeperError

_log = logging.getLogger(__name__)

SCRAPE_FAILED: Final = "scrape_failed"
_TIMEOUT_SECONDS: Final = 5.0
_MAX_PAGE_BYTES: Final = 16 << 20
_STOP_SECONDS: Final = _TIMEOUT_SECONDS + 1

Fetch = Callable[[str], str]


class PrometheusReceiver:
    """Scrapes all targets in turn, in its own thread. A failing target is counted and logged once."""

    def __init__(
        self,
        targets: Sequence[str],
        pipeline: Pipeline,
        counters: Counters,
        *,
        every_seconds: float,
        fetch: Fetch | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Set the parts; `targets` are the pages' full URLs."""
        self._targets = tuple(targets)
        self._pipeline = pipeline
        self._counters = counters
        self._every_seconds = every_seconds
        self._fetch = fetch or fetch_page
        self._clock_ns = clock_ns
        self._failing: set[str] = set()
        self._started_at_ns = clock_ns()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scraper", daemon=True)

    def start(self) -> None:
        """Start the thread if there are targets."""
        if self._targets:
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Blocks while a page is being read."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def scrape(self, target: str) -> int:
        """Read one page and write it to the spool; return the number of points, 0 if it failed."""
        try:
            request = metrics_request(self._fetch(target), target, self._clock_ns(), self._started_at_ns)
            receipt = self._pipeline.accept("metrics", request.SerializeToString(), is_json=False)
        except (OSError, HTTPException, ValueError, TollkeeperError) as error:  # an HTTPException is not an OSError
            self._counters.rejected(SCRAPE_FAILED)
            if target not in self._failing:
                self._failing.add(target)
                _log.warning("scrape failed target=%s reason=%s", target, error)
            return 0
        self._failing.discard(target)
        return receipt.records

    def _run(self) -> None:
        while not self._stopping.is_set():
            for target in self._targets:
                if not self._stopping.is_set():
                    self.scrape(target)
            self._stopping.wait(self._every_seconds)


def fetch_page(url: str) -> str:
    """Read a page of at most 16 MiB. Raises OSError, HTTPException (invalid response), ValueError (larger page)."""
    asked = Request(url, headers={"Accept": "text/plain;version=0.0.4", "User-Agent": "tollkeeper"})
    with urlopen(asked, timeout=_TIMEOUT_SECONDS) as answer:
        page: bytes = answer.read(_MAX_PAGE_BYTES + 1)
    if len(page) > _MAX_PAGE_BYTES:
        raise ValueError(f"its page is larger than {_MAX_PAGE_BYTES} bytes")
    return page.decode("utf-8", "replace")
