"""Prometheus metrics of a collector: counts by cause and tenant, backlog, lag."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from collector.state import CollectorState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "tollkeeper_collector_"


class CollectorMetrics(Collector):
    """Reads the collector's state on each scrape. An unknown value has no sample."""

    def __init__(self, state: CollectorState) -> None:
        self._state = state
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    async def page(self, _: Request) -> Response:
        """Return the response to GET /metrics, in Prometheus' text format."""
        return Response(generate_latest(self._registry), headers={"content-type": CONTENT_TYPE})

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their current values."""
        state = self._state
        counts, by_tenant = state.counters.snapshot(), state.counters.by_tenant()
        yield _counter("received_records", "Records acknowledged to their senders.", "signal", counts["received"])
        yield _counter("exported_rows", "Rows accepted by the store.", "table", counts["exported"])
        yield _by_tenant(
            "rejected_records",
            "Records refused or not stored. Empty tenant: unknown.",
            "cause",
            by_tenant["rejected"],
        )
        yield _by_tenant(
            "notices",
            "What was put right on the way, or is worth knowing. No tenant: not known.",
            "what",
            by_tenant["noticed"],
        )
        yield _gauge("spool_bytes", "Bytes on disk that the store does not have.", state.spool.pending_bytes)
        yield _gauge("spool_max_bytes", "The bound of spool_bytes; senders are refused there.", state.spool.max_bytes)
        yield _gauge(
            "queue_age_seconds",
            "Age of the oldest batch that the store does not have; 0: none waits.",
            state.queue_age_seconds() or 0.0,
        )
        yield _gauge(
            "export_lag_seconds",
            "From the receipt of a batch to the store, of the last insert.",
            state.exporter.lag_seconds,
        )
        reachable = state.exporter.store_reachable
        yield _gauge(
            "store_reachable", "1 if the last attempt reached the store.", None if reachable is None else int(reachable)
        )
        yield _total("dead_letters", "Records set aside since the start.", state.dead_letters.written)
        yield _total(
            "spool_corrupt_entries",
            "Stretches of the spool that could not be read, found since the start.",
            state.spool.corrupt_entries,
        )
        yield _gauge(
            "spool_missing_entries",
            "Batches lost to damage on disk, until the spool's directory damaged/ is removed.",
            state.spool.missing.entries,
        )


def _counter(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(_PREFIX + name, text, labels=[label])
    for value, amount in counts.items():
        family.add_metric([value], amount)
    return family


def _by_tenant(name: str, text: str, label: str, counts: Mapping[tuple[str, str], int]) -> Metric:
    family = CounterMetricFamily(_PREFIX + name, text, labels=[label, "tenant"])
    for (value, tenant), amount in counts.items():
        family.add_metric([value, tenant], amount)
    return family


def _gauge(name: str, text: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, text)
    if value is not None:
        family.add_metric([], value)
    return family


def _total(name: str, text: str, value: int) -> Metric:
    family = CounterMetricFamily(_PREFIX + name, text)
    family.add_metric([], value)
    return family
