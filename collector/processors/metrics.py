"""Processes third-party metrics: each data point becomes a row of `metrics`."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    DataPointFlags,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    SummaryDataPoint,
)

from collector.processors.attributes import attribute_map, tenant_in
from collector.processors.signal import SignalProcessor, Survey
from collector.processors.times import CLAMPED, clamp_time
from collector.rows import BrokenRecord, Processed
from collector.spool import SpooledBatch
from contracts.recording.names import METRICS, SERVICE_NAME, TENANT
from contracts.recording.telemetry import MetricRow

Point = NumberDataPoint | HistogramDataPoint | ExponentialHistogramDataPoint | SummaryDataPoint

INVALID_POINT: Final = "invalid_data_point"
NOT_A_NUMBER: Final = "not_a_number"
_KINDS: Final = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
_TEMPORALITIES: Final = ("", "delta", "cumulative")
_NO_VALUE: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_MAX_BUCKETS: Final = 1024
_MAX_DESCRIPTION: Final = 256  # the bucket bound is a label of every point
_MAX_SCALE: Final = 20


class MetricsProcessor(SignalProcessor[ExportMetricsServiceRequest]):
    """Processor of /v1/metrics. A record is a data point."""

    signal = "metrics"
    parts = "resource_metrics"
    scopes = "scope_metrics"
    records = "metrics"
    request = ExportMetricsServiceRequest

    def survey(self, message: ExportMetricsServiceRequest) -> Survey:
        """Count the points, and those that are inconsistent."""
        points = unreadable = 0
        for _, _, metric in _metrics(message):
            for point in _points(metric):
                points += 1
                unreadable += _contradiction(metric, point) != ""
        return Survey(points, unreadable)

    def size(self, record: Any) -> int:
        """Return a metric's number of points."""
        return len(_points(record))

    def by_tenant(self, record: Any, own: str) -> dict[str, Any]:
        """Return the metric split by the tenants that its points name."""
        tenants = [tenant_in(point.attributes) or own for point in _points(record)]
        if len(set(tenants)) <= 1:
            return {tenants[0] if tenants else own: record}
        pieces: dict[str, Any] = {}
        for tenant in dict.fromkeys(tenants):
            piece = pieces[tenant] = Metric()
            piece.CopyFrom(record)
            points: Any = _points(piece)
            kept = [point for point, whose in zip(points, tenants, strict=True) if whose == tenant]
            del points[:]
            points.extend(kept)
        return pieces

    def response(self, rejected: int, reason: str) -> ExportMetricsServiceResponse:
        """Return the OTLP response with the number of rejected points."""
        response = ExportMetricsServiceResponse()
        if rejected:
            response.partial_success.rejected_data_points = rejected
            response.partial_success.error_message = reason
        return response

    def process(self, batch: SpooledBatch) -> Processed:
        """Return a row per data point that has a value."""
        processed = Processed()
        resource: dict[str, str] = {}
        last: ResourceMetrics | None = None
        index = -1
        for resource_metrics, scope_metrics, metric in _metrics(self.parse(batch.payload)):
            if resource_metrics is not last:
                last, noticed = resource_metrics, list[str]()
                resource = attribute_map(resource_metrics.resource.attributes, noticed)
                processed.notice(noticed)
            for point in _points(metric):
                index += 1
                reason = _contradiction(metric, point)
                if reason:
                    processed.broken.append(BrokenRecord(index, INVALID_POINT, reason, point.SerializeToString()))
                elif not point.flags & _NO_VALUE:  # staleness mark: the series has ended, without a value
                    row = _row(resource, scope_metrics, metric, point, batch.received_at_ns, processed)
                    processed.add(METRICS, row)
        return processed


def _metrics(message: ExportMetricsServiceRequest) -> Iterator[tuple[ResourceMetrics, ScopeMetrics, Metric]]:
    for resource_metrics in message.resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                yield resource_metrics, scope_metrics, metric


def _points(metric: Metric) -> Sequence[Any]:
    kind = metric.WhichOneof("data")
    return () if kind is None else getattr(metric, kind).data_points


def _contradiction(metric: Metric, point: Any) -> str:
    """Return why a point is inconsistent; "" if it is valid."""
    if not metric.name:
        return "the metric has no name"
    if isinstance(point, HistogramDataPoint):
        buckets, bounds = len(point.bucket_counts), len(point.explicit_bounds)
        if buckets > _MAX_BUCKETS:
            return f"{buckets} buckets; the limit is {_MAX_BUCKETS}"
        if buckets and buckets != bounds + 1:
            return f"{buckets} buckets do not fit {bounds} bounds"
        if buckets and sum(point.bucket_counts) != point.count:
            return f"the buckets' counts do not add up to {point.count}"
    elif isinstance(point, ExponentialHistogramDataPoint):
        buckets = len(point.positive.bucket_counts) + len(point.negative.bucket_counts)
        if buckets > _MAX_BUCKETS:
            return f"{buckets} buckets; the limit is {_MAX_BUCKETS}"
        if point.scale > _MAX_SCALE:
            return f"scale {point.scale}; the limit is {_MAX_SCALE}"
    elif isinstance(point, SummaryDataPoint) and len(point.quantile_values) > _MAX_BUCKETS:
        return f"{len(point.quantile_values)} quantiles; the limit is {_MAX_BUCKETS}"
    return ""


def _row(
    resource: dict[str, str],
    scope_metrics: ScopeMetrics,
    metric: Metric,
    point: Point,
    received_at_ns: int,
    processed: Processed,
) -> MetricRow:
    noticed: list[str] = []
    attributes = attribute_map(point.attributes, noticed)
    stated_at_ns = point.time_unix_nano or received_at_ns
    at_ns = clamp_time(stated_at_ns, received_at_ns)
    started_at_ns = clamp_time(point.start_time_unix_nano or at_ns, received_at_ns)
    if at_ns != stated_at_ns:
        noticed.append(CLAMPED)
    facts = _facts(metric, point)
    for name in ("value", "sum", "min", "max"):
        number = facts.get(name)
        if number is not None and not math.isfinite(number):
            noticed.append(NOT_A_NUMBER)
            facts[name] = None  # stored as unknown: one NaN would make every sum over the series NaN
    processed.notice(noticed)
    kind = metric.WhichOneof("data")
    return MetricRow(
        tenant=attributes.get(TENANT) or resource.get(TENANT, ""),
        name=metric.name,
        kind=kind if kind in _KINDS else "",
        unit=metric.unit,
        description=metric.description[:_MAX_DESCRIPTION],
        service=resource.get(SERVICE_NAME, ""),
        attributes=attributes,
        resource_attributes=resource,
        scope_name=scope_metrics.scope.name,
        scope_version=scope_metrics.scope.version,
        started_at_ns=min(started_at_ns, at_ns),
        at_ns=at_ns,
        **facts,
    )


def _facts(metric: Metric, point: Point) -> dict[str, Any]:
    if isinstance(point, NumberDataPoint):
        value = float(point.as_int) if point.HasField("as_int") else point.as_double
        facts: dict[str, Any] = {"value": value if point.WhichOneof("value") else None}
        if metric.HasField("sum"):
            facts["is_monotonic"] = metric.sum.is_monotonic
            facts["temporality"] = _temporality(metric.sum.aggregation_temporality)
        return facts
    if isinstance(point, SummaryDataPoint):
        return {
            "count": point.count,
            "sum": point.sum,
            "quantiles": [one.quantile for one in point.quantile_values],
            "quantile_values": [one.value for one in point.quantile_values],
        }
    facts = {name: getattr(point, name) if point.HasField(name) else None for name in ("sum", "min", "max")}
    facts["count"] = point.count
    if isinstance(point, HistogramDataPoint):
        facts["temporality"] = _temporality(metric.histogram.aggregation_temporality)
        facts["bucket_counts"] = list(point.bucket_counts)
        facts["bucket_bounds"] = list(point.explicit_bounds)
        return facts
    return facts | {
        "temporality": _temporality(metric.exponential_histogram.aggregation_temporality),
        "scale": point.scale,
        "zero_count": point.zero_count,
        "positive_offset": point.positive.offset,
        "positive_counts": list(point.positive.bucket_counts),
        "negative_offset": point.negative.offset,
        "negative_counts": list(point.negative.bucket_counts),
    }


def _temporality(number: int) -> str:
    return _TEMPORALITIES[number] if 0 <= number < len(_TEMPORALITIES) else ""
