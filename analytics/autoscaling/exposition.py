"""Renders the signals in Prometheus' text format. Unknown values have no sample, because 0 would scale down."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from analytics.autoscaling.signals import ModelSignals

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def signal_page(signals: Mapping[str, ModelSignals]) -> bytes:
    """Return the page with the signals of all models."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Signals(list(signals.values())))
    return generate_latest(registry)


class _Signals(Collector):
    def __init__(self, signals: list[ModelSignals]) -> None:
        self._signals = signals

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metric families."""
        yield self._family("replicas", "Replicas that reported.", lambda one: float(one.replicas))
        yield self._family("queue_requests", "Requests that wait in the engines' queues.", lambda one: one.waiting)
        yield self._family("running_requests", "Requests that have a seat in an engine.", lambda one: one.running)
        yield self._family("kv_usage_ratio", "Used share of the fullest KV cache.", lambda one: one.kv_share)
        yield self._family("busy_ratio", "Mean share of time in which a step ran.", lambda one: one.busy_share)
        yield self._family(
            "predicted_ttft_seconds",
            "Predicted time to first token of a request that arrives now.",
            lambda one: one.predicted_ttft_seconds,
        )

    def _family(self, name: str, text: str, value: Callable[[ModelSignals], float | None]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"tollkeeper_autoscaling_{name}", text, labels=["model"])
        for one in self._signals:
            found = value(one)
            if found is not None:
                family.add_metric([one.model], found)
        return family
