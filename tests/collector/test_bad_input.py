"""One bad record never costs its neighbours their place: what can be read is taken, and the rest is told."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from backends.segment_log.segments import SegmentLog
from collector.counters import Counters
from collector.pipeline import Pipeline
from collector.processors.attributes import text_of
from collector.processors.logs import LogsProcessor
from collector.processors.metrics import MetricsProcessor
from collector.processors.salvage import encode_varint
from collector.processors.spans import SpansProcessor
from collector.spool import Spool
from contracts.errors import InvalidRequest
from tests.collector.otlp_samples import gauge_request, span_request

Make = Callable[..., Any]
MARK = b"\xe2\x82\xac"  # a euro sign; cut short, it is no UTF-8 any more


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(SegmentLog(tmp_path / "spool", max_bytes=1 << 20))


@pytest.fixture
def pipeline(spool: Spool, counters: Counters) -> Pipeline:
    processors = {"logs": LogsProcessor(), "traces": SpansProcessor(), "metrics": MetricsProcessor()}
    return Pipeline(processors, spool, counters)  # type: ignore[arg-type]  # each of its own kind


def broken(body: bytes) -> bytes:
    """Make the texts with a euro sign invalid UTF-8, without moving anything."""
    assert MARK in body
    return body.replace(MARK, b"\xe2\x82\xff")


def rows(pipeline: Pipeline, spool: Spool, table: str) -> list[Any]:
    return [
        row
        for entry in spool.read(spool.cursor, max_bytes=1 << 20)
        if entry.batch is not None
        for row in pipeline.process(entry.batch).tables[table].rows
    ]


def test_a_span_with_invalid_utf8_is_refused_and_its_neighbours_are_taken(
    pipeline: Pipeline, spool: Spool, counters: Counters
) -> None:
    request = span_request({"name": "a"}, {"name": "€"}, {"attributes": {"k": "€"}}, {"name": "d"}, scope="s")
    receipt = pipeline.accept("traces", broken(request.SerializeToString()), is_json=False)
    assert (receipt.records, receipt.rejected) == (4, 2)
    assert receipt.reason == "2 of 4 records cannot be read"
    assert counters.snapshot()["rejected"] == {"unreadable_record": 2}
    assert [(row.name, row.scope_name) for row in rows(pipeline, spool, "traces")] == [("a", "s"), ("d", "s")]


def test_a_resource_with_invalid_utf8_costs_no_span(pipeline: Pipeline, spool: Spool) -> None:
    request = span_request({"name": "a"}, resource={"service.name": "€"})
    receipt = pipeline.accept("traces", broken(request.SerializeToString()), is_json=False)
    assert (receipt.records, receipt.rejected) == (1, 0)
    assert [row.service for row in rows(pipeline, spool, "traces")] == [""]


def test_log_lines_and_metrics_are_saved_alike(pipeline: Pipeline, spool: Spool) -> None:
    logs = ExportLogsServiceRequest()
    records = logs.resource_logs.add().scope_logs.add().log_records
    for text in ("a", "€", "c"):
        records.add(time_unix_nano=time.time_ns()).body.string_value = text
    assert pipeline.accept("logs", broken(logs.SerializeToString()), is_json=False).rejected == 1
    assert [row.body for row in rows(pipeline, spool, "logs")] == ["a", "c"]
    metrics = gauge_request("m", ({}, 1.0))
    metrics.MergeFrom(gauge_request("€", ({}, 1.0)))
    assert pipeline.accept("metrics", broken(metrics.SerializeToString()), is_json=False).rejected == 1


@pytest.mark.parametrize("cut", [1, 2, 7, 20])
def test_a_truncated_request_is_refused_as_a_whole(pipeline: Pipeline, spool: Spool, cut: int) -> None:
    body = span_request({"name": "a"}, {"name": "b"}).SerializeToString()
    with pytest.raises(InvalidRequest) as refused:
        pipeline.accept("traces", body[:-cut], is_json=False)
    assert refused.value.error_code == "malformed_protobuf"
    assert spool.pending_bytes == 0


def test_a_request_without_one_readable_record_is_refused_as_a_whole(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidRequest):
        pipeline.accept("traces", broken(span_request({"name": "€"}).SerializeToString()), is_json=False)


def test_packed_records_are_saved_from_a_broken_neighbour(
    pipeline: Pipeline, spool: Spool, batch_of: Make, request_record: Make
) -> None:
    foreign = ExportLogsServiceRequest()
    foreign.resource_logs.add().scope_logs.add().log_records.add().body.string_value = "€"
    body = batch_of("b1", request_record()) + broken(foreign.SerializeToString())
    receipt = pipeline.accept("logs", body, is_json=False)
    assert (receipt.records, receipt.rejected) == (2, 1)
    (entry,) = spool.read(spool.cursor, max_bytes=1 << 20)
    assert entry.batch is not None
    assert entry.batch.batch_id == "b1"


@pytest.mark.parametrize(
    "span",
    [b'{"kind": 1e999}', b'{"kind": -1e999}', b'{"kind": "\\ud800"}', b'{"status": "\\ud800"}', b'{"links": [1]}'],
)
def test_json_of_which_no_span_can_be_made_is_refused(span: bytes) -> None:
    with pytest.raises(InvalidRequest, match="is not an OTLP/JSON"):
        SpansProcessor().parse_json(b'{"resourceSpans": [{"scopeSpans": [{"spans": [%b]}]}]}' % span)


def test_a_kind_of_value_that_only_profiles_have_is_empty() -> None:
    nested = AnyValue()
    nested.array_value.values.add(string_value_strindex=1)
    assert (text_of(AnyValue(string_value_strindex=1)), text_of(nested)) == ("", '[""]')


@given(body=st.binary(max_size=300), place=st.integers(0, 10_000), bite=st.binary(min_size=1, max_size=4))
def test_no_damage_to_a_request_does_more_than_to_have_it_refused(body: bytes, place: int, bite: bytes) -> None:
    sound = span_request({"name": "a"}, {"name": "b"}, resource={"service.name": "x"}).SerializeToString()
    at = place % len(sound)
    processor = SpansProcessor()
    for damaged in (body, sound[:at] + bite + sound[at + len(bite) :]):
        try:
            saved, lost = processor.salvage(damaged)
        except InvalidRequest:
            continue
        assert processor.survey(processor.parse(saved)).records >= 1
        assert lost >= 0


@given(st.integers(0, 2**64 - 1))
def test_numbers_are_written_as_protobuf_does(number: int) -> None:
    from google.protobuf.internal.encoder import _VarintBytes  # type: ignore[attr-defined]  # the library's own

    assert encode_varint(number) == _VarintBytes(number)
