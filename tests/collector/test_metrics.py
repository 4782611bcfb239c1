"""Anyone's metrics: each point a row, and the impossible ones set aside."""

import math
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from collector.processors.metrics import MetricsProcessor
from collector.processors.times import NEWEST_NS, OLDEST_NS
from collector.rows import Processed
from collector.spool import SpooledBatch
from contracts.recording.telemetry import MetricRow
from tests.collector.otlp_samples import NOW, gauge_request, key_values


def processed_metrics(request: ExportMetricsServiceRequest) -> Processed:
    return MetricsProcessor().process(SpooledBatch("b", "metrics", NOW, request.SerializeToString()))


def rows_of(request: ExportMetricsServiceRequest) -> list[MetricRow]:
    tables = processed_metrics(request).tables
    return tables["metrics"].rows if tables else []


def one_metric(**fields: Any) -> tuple[ExportMetricsServiceRequest, Any]:
    request = ExportMetricsServiceRequest()
    part = request.resource_metrics.add()
    part.resource.attributes.extend(key_values({"service.name": "app", "tollkeeper.tenant.id": "acme"}))
    return request, part.scope_metrics.add().metrics.add(name="m", **fields)


def test_a_gauge_keeps_its_value_and_whose_it_is() -> None:
    request, metric = one_metric(unit="s", description="how long")
    metric.gauge.data_points.add(time_unix_nano=NOW, as_int=7).attributes.extend(key_values({"llm.model_name": "tiny"}))
    (row,) = rows_of(request)
    assert (row.tenant, row.service, row.name, row.kind, row.unit) == ("acme", "app", "m", "gauge", "s")
    assert (row.value, row.at_ns, row.attributes) == (7.0, NOW, {"gen_ai.request.model": "tiny"})


def test_a_sum_says_how_it_counts() -> None:
    request, metric = one_metric()
    metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, 2
    metric.sum.data_points.add(time_unix_nano=NOW, start_time_unix_nano=NOW - 9, as_double=1.5)
    (row,) = rows_of(request)
    assert (row.value, row.is_monotonic, row.temporality, row.started_at_ns) == (1.5, True, "cumulative", NOW - 9)


def test_histograms_and_summaries_keep_their_shape() -> None:
    request, metric = one_metric()
    metric.histogram.aggregation_temporality = 1
    metric.histogram.data_points.add(
        time_unix_nano=NOW, count=3, sum=4.0, min=0.5, bucket_counts=[1, 2], explicit_bounds=[1.0]
    )
    (row,) = rows_of(request)
    assert (row.count, row.sum, row.min, row.max, row.temporality) == (3, 4.0, 0.5, None, "delta")
    assert (row.bucket_counts, row.bucket_bounds) == ([1, 2], [1.0])

    request, metric = one_metric()
    point = metric.exponential_histogram.data_points.add(time_unix_nano=NOW, count=3, scale=-2, zero_count=1)
    point.positive.offset = -4
    point.positive.bucket_counts.extend([1, 1])
    (row,) = rows_of(request)
    assert (row.kind, row.scale, row.zero_count, row.positive_offset) == ("exponential_histogram", -2, 1, -4)
    assert row.positive_counts == [1, 1]

    request, metric = one_metric()
    metric.summary.data_points.add(time_unix_nano=NOW, count=3, sum=4.0).quantile_values.add(quantile=0.5, value=2.0)
    (row,) = rows_of(request)
    assert (row.kind, row.count, row.quantiles, row.quantile_values) == ("summary", 3, [0.5], [2.0])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_unknown_and_counted(value: float) -> None:
    processed = processed_metrics(gauge_request("m", ({}, value), ({}, 1.0)))
    assert [row.value for row in processed.tables["metrics"].rows] == [None, 1.0]
    assert processed.noticed == {"not_a_number": 1}


def test_a_point_that_says_it_has_no_value_is_no_row() -> None:
    request, metric = one_metric()
    metric.gauge.data_points.add(time_unix_nano=NOW, flags=1)
    assert rows_of(request) == []


@pytest.mark.parametrize(
    ("fields", "is_sound"),
    [
        ({"count": 3, "bucket_counts": [1, 2], "explicit_bounds": [1.0]}, True),
        ({"count": 3, "bucket_counts": [1, 2], "explicit_bounds": []}, False),
        ({"count": 4, "bucket_counts": [1, 2], "explicit_bounds": [1.0]}, False),
        ({"count": 4}, True),
        ({"count": 0, "bucket_counts": [0] * 1024, "explicit_bounds": [0.0] * 1023}, True),
        ({"count": 0, "bucket_counts": [0] * 1025, "explicit_bounds": [0.0] * 1024}, False),
    ],
    ids=["sound", "no bounds", "wrong count", "no buckets", "most buckets", "too many buckets"],
)
def test_a_histogram_that_contradicts_itself_is_set_aside_and_told(fields: dict[str, Any], is_sound: bool) -> None:
    request, metric = one_metric()
    metric.histogram.data_points.add(time_unix_nano=NOW, **fields)
    metric.histogram.data_points.add(time_unix_nano=NOW)
    processed = processed_metrics(request)
    assert len(processed.tables["metrics"].rows) == 1 + is_sound
    assert [one.cause for one in processed.broken] == ([] if is_sound else ["invalid_data_point"])
    assert MetricsProcessor().survey(request).unreadable == (not is_sound)


@pytest.mark.parametrize(
    ("offset", "expected"), [(-OLDEST_NS - 1, -OLDEST_NS), (NEWEST_NS, NEWEST_NS), (NEWEST_NS + 1, NEWEST_NS)]
)
def test_times_of_points_are_clamped_and_counted(offset: int, expected: int) -> None:
    request, metric = one_metric()
    metric.gauge.data_points.add(time_unix_nano=NOW + offset, as_double=1)
    processed = processed_metrics(request)
    assert processed.tables["metrics"].rows[0].at_ns == NOW + expected
    assert processed.noticed == ({} if offset == expected else {"clamped_time": 1})
