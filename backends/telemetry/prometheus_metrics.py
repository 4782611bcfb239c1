"""Converts a page in Prometheus' text format to an OTLP metrics request."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from prometheus_client.core import Metric, Sample

from backends.telemetry.prometheus_text import read_families
from contracts.recording.names import SERVICE_NAME

_CUMULATIVE: Final = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_COUNTER: Final = re.compile(r"^# TYPE\s+(\S+)\s+counter\s*$", re.MULTILINE)
_OWN_LABELS: Final = {"histogram": "le", "summary": "quantile"}


@dataclass(frozen=True, slots=True)
class Rename:
    """A metric's name and unit in OTLP, and the factor for its values."""

    name: str
    unit: str = ""
    factor: float = 1.0


_MIB: Final = float(1 << 20)
# dcgm-exporter 3 and 4 (etc/default-counters.csv), to OpenTelemetry's hardware conventions 1.44 where they have a name.
# vLLM before 0.11, to vLLM 0.33.
RENAMES: Final[Mapping[str, Rename]] = {
    "DCGM_FI_DEV_GPU_UTIL": Rename("hw.gpu.utilization", "1", 0.01),
    "DCGM_FI_DEV_FB_USED": Rename("hw.gpu.memory.usage", "By", _MIB),
    "DCGM_FI_DEV_POWER_USAGE": Rename("hw.power", "W"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": Rename("hw.energy", "J", 0.001),
    "DCGM_FI_DEV_GPU_TEMP": Rename("hw.temperature", "Cel"),
    "vllm:gpu_cache_usage_perc": Rename("vllm:kv_cache_usage_perc"),
    "vllm:gpu_prefix_cache_queries_total": Rename("vllm:prefix_cache_queries_total"),
    "vllm:gpu_prefix_cache_hits_total": Rename("vllm:prefix_cache_hits_total"),
    "vllm:time_per_output_token_seconds": Rename("vllm:inter_token_latency_seconds"),
}
_DCGM: Final = "DCGM_FI_"
_LABELS: Final = {
    "UUID": "hw.id",
    "modelName": "hw.model",
    "Hostname": "host.name",
    "DCGM_FI_DRIVER_VERSION": "hw.driver_version",
}


@dataclass(slots=True)
class _Series:
    """One series of a family: a value, or the parts of a histogram or summary."""

    labels: dict[str, str]
    value: float | None = None
    parts: list[tuple[float, float]] = field(default_factory=list)  # bound or quantile, and its value
    sum: float | None = None
    count: float | None = None


def metrics_request(page: str, target: str, now_ns: int, started_at_ns: int) -> ExportMetricsServiceRequest:
    """Return a page's metrics as a request. `target` is its URL, whose host and port name the service's instance.

    Counters are assumed to have started at `started_at_ns`, the time of the first scrape. Unreadable lines are skipped.
    """
    request = ExportMetricsServiceRequest()
    part = request.resource_metrics.add()
    place = urlsplit(target)
    for key, value in (
        (SERVICE_NAME, place.hostname or ""),
        ("service.instance.id", place.netloc),
        ("url.full", target),
    ):
        part.resource.attributes.add(key=key).value.string_value = value
    scope = part.scope_metrics.add()
    scope.scope.name = "prometheus"
    counters = set(_COUNTER.findall(page))
    metrics: dict[tuple[str, str], Any] = {}
    for family in read_families(page):
        # The parser adds _total to every counter's name, which the page may not have.
        name = f"{family.name}_total" if family.type == "counter" and family.name not in counters else family.name
        rename = RENAMES.get(name, Rename(name))
        known = name, family.type  # the parser creates a family per series without a type
        if known not in metrics:
            metrics[known] = scope.metrics.add(name=rename.name, unit=rename.unit)
        for series in _series(family, name).values():
            _add(metrics[known], family.type, name, series, rename.factor, now_ns, started_at_ns)
    return request


def _series(family: Metric, name: str) -> dict[tuple[tuple[str, str], ...], _Series]:
    found: dict[tuple[tuple[str, str], ...], _Series] = {}
    own = _OWN_LABELS.get(family.type, "")
    for sample in family.samples:
        labels = {_label(key, name): value for key, value in sample.labels.items() if key != own}
        _take(found.setdefault(tuple(sorted(labels.items())), _Series(labels)), sample, family, own)
    return found


def _label(key: str, family: str) -> str:
    return _LABELS.get(key, key) if family.startswith(_DCGM) else key


def _take(series: _Series, sample: Sample, family: Metric, own: str) -> None:
    if own and sample.name == f"{family.name}_sum":
        series.sum = sample.value
    elif own and sample.name == f"{family.name}_count":
        series.count = sample.value
    elif own and own in sample.labels:
        try:
            series.parts.append((float(sample.labels[own]), sample.value))
        except ValueError:
            return
    else:
        series.value = sample.value


def _add(metric: Any, kind: str, name: str, series: _Series, factor: float, now_ns: int, started_at_ns: int) -> None:
    if kind == "histogram":
        metric.histogram.aggregation_temporality = _CUMULATIVE
        point = metric.histogram.data_points.add(start_time_unix_nano=started_at_ns)
        _fill_histogram(point, series)
    elif kind == "summary":
        point = metric.summary.data_points.add(start_time_unix_nano=started_at_ns, sum=series.sum or 0.0)
        point.count = _whole(series.count)
        for quantile, at_quantile in series.parts:
            point.quantile_values.add(quantile=quantile, value=at_quantile)
    elif kind == "counter" or (kind == "unknown" and name.endswith("_total")):
        metric.sum.aggregation_temporality = _CUMULATIVE
        metric.sum.is_monotonic = True
        point = metric.sum.data_points.add(start_time_unix_nano=started_at_ns, as_double=_scaled(series, factor))
    else:
        point = metric.gauge.data_points.add(as_double=_scaled(series, factor))
    point.time_unix_nano = now_ns
    for key, value in series.labels.items():
        point.attributes.add(key=key).value.string_value = value


def _scaled(series: _Series, factor: float) -> float:
    return math.nan if series.value is None else series.value * factor


def _fill_histogram(point: Any, series: _Series) -> None:
    """Set a histogram's buckets: OTLP counts each bucket separately, Prometheus cumulatively."""
    parts = sorted(series.parts)
    below = 0
    for bound, value in parts:
        count = max(_whole(value) - below, 0)
        below += count
        point.bucket_counts.append(count)
        if math.isfinite(bound):
            point.explicit_bounds.append(bound)
    if parts and math.isfinite(parts[-1][0]):  # the page lacks the last bucket, which equals the count
        point.bucket_counts.append(max(_whole(series.count) - below, 0))
    point.count = sum(point.bucket_counts) if parts else _whole(series.count)
    if series.sum is not None:
        point.sum = series.sum


def _whole(value: float | None) -> int:
    return int(value) if value is not None and 0 <= value < 2**63 else 0
