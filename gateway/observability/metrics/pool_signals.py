"""Autoscaling signals of third-party inference servers: queue, KV cache, time to first token."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from backends.engine_metrics.gauges import ServerGauges
from backends.engine_metrics.scraper import Scrape
from contracts.serving.configuration import Snapshot
from gateway.observability.metrics.exposition import Family, Sample

WINDOW_SECONDS: Final = 60.0

_Stages = tuple[tuple[float, int], ...]

# Signals of a pool by the metric.
_SIGNALS: Final = {
    "tollkeeper_pool_replicas": "Inference servers of a pool that answer.",
    "tollkeeper_pool_queue_requests": "Requests that wait at a pool's servers.",
    "tollkeeper_pool_running_requests": "Requests in a pool's batches.",
    "tollkeeper_pool_kv_usage_ratio": "Used part of a pool's fullest KV cache.",
    "tollkeeper_pool_ttft_seconds": "Mean time to the first token in the last minute.",
}


class FirstTokenTimes:
    """Times to first token in the last minute, by target, computed from the sums and counts that servers report."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, _Stages]]] = {}

    def note(self, scrapes: Mapping[str, Scrape], at_seconds: float) -> None:
        """Record what servers reported at a time on a monotonic clock. The counts of a restarted server start again."""
        for gone in self._seen.keys() - scrapes.keys():
            del self._seen[gone]
        for name, scrape in scrapes.items():
            if scrape.gauges is None:
                continue
            seen, stages = self._seen.setdefault(name, deque()), scrape.gauges.first_token_stages
            if seen and not _goes_on(seen[-1][1], stages):
                seen.clear()
            seen.append((at_seconds, stages))
            while len(seen) > 2 and at_seconds - seen[1][0] >= WINDOW_SECONDS:
                seen.popleft()

    def mean(self, target: str) -> tuple[float, int] | None:
        """Return the mean in seconds and the number of requests; `None` if there were none, or the server does not
        report it.
        """
        seen = self._seen.get(target)
        if not seen or not seen[-1][1]:
            return None
        passed = [(now[0] - before[0], now[1] - before[1]) for before, now in zip(seen[0][1], seen[-1][1], strict=True)]
        if any(times <= 0 for _, times in passed):
            return None
        return sum(seconds / times for seconds, times in passed), passed[0][1]


def pool_families(snapshot: Snapshot, scrapes: Mapping[str, Scrape], first_tokens: FirstTokenTimes) -> Iterator[Family]:
    """Yield each pool's signals, over the servers that answered. Values that no server reports have no sample."""
    samples: dict[str, list[Sample]] = {name: [] for name in _SIGNALS}
    for pool in snapshot.pools.values():
        gauges = {
            target.id: scrape.gauges
            for target in pool.targets
            if (scrape := scrapes.get(target.id)) is not None and scrape.gauges is not None
        }
        if gauges:
            for name, value in _signals(gauges, first_tokens).items():
                if value is not None:
                    samples[name].append(({"pool": pool.id}, value))
    for name, help in _SIGNALS.items():
        yield Family(name, "gauge", help, samples[name])


def _signals(gauges: Mapping[str, ServerGauges], first_tokens: FirstTokenTimes) -> dict[str, float | None]:
    """Return a pool's signals from what its servers say, at least one; `None` for what none of them says."""
    waiting = [found.waiting for found in gauges.values() if found.waiting is not None]
    running = [found.running for found in gauges.values() if found.running is not None]
    ratios = [found.kv_usage for found in gauges.values() if found.kv_usage is not None]
    means = [mean for name in gauges if (mean := first_tokens.mean(name)) is not None]
    requests = sum(times for _, times in means)
    return {
        "tollkeeper_pool_replicas": len(gauges),
        "tollkeeper_pool_queue_requests": sum(waiting) if waiting else None,
        "tollkeeper_pool_running_requests": sum(running) if running else None,
        "tollkeeper_pool_kv_usage_ratio": max(ratios, default=None),
        "tollkeeper_pool_ttft_seconds": sum(mean * times for mean, times in means) / requests if means else None,
    }


def _goes_on(before: _Stages, now: _Stages) -> bool:
    """Return whether a server's counters continued; after a restart they are smaller."""
    return len(before) == len(now) and all(one[1] <= other[1] for one, other in zip(before, now, strict=True))
