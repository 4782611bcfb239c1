"""What may stop, thin out or change foreign telemetry on its way in; packed records pass all of it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from backends.segment_log.segments import SegmentLog
from collector.counters import Counters
from collector.pipeline import Pipeline
from collector.processors.cardinality import CardinalityLimiter
from collector.processors.logs import LogsProcessor
from collector.processors.metrics import MetricsProcessor
from collector.processors.quotas import KnownTenants, TenantQuotas
from collector.processors.record_tenants import RecordTenants
from collector.processors.redaction import Redaction, TextRedaction
from collector.processors.spans import SpansProcessor
from collector.receivers.memory import MemoryLimiter
from collector.rows import Processed
from collector.spool import Spool, SpooledBatch
from contracts.errors import LimitExceeded
from contracts.recording.names import TENANT
from tests.collector.otlp_samples import NOW, gauge_request, key_values, span_request

Make = Callable[..., Any]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def spans_of(tenant: str, count: int) -> bytes:
    resource = {"tollkeeper.tenant.id": tenant} if tenant else {}
    return span_request(*({"name": f"n{number}"} for number in range(count)), resource=resource).SerializeToString()


def pipeline_of(spool: Spool, counters: Counters, *steps: Any) -> Pipeline:
    processors = {"logs": LogsProcessor(), "traces": SpansProcessor(), "metrics": MetricsProcessor()}
    return Pipeline(processors, spool, counters, arrival_steps=steps)  # type: ignore[arg-type]  # each of its own kind


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(SegmentLog(tmp_path / "spool", max_bytes=1 << 20))


def spooled_spans(spool: Spool) -> list[str]:
    return [
        row.name
        for entry in spool.read(spool.cursor, max_bytes=1 << 20)
        if entry.batch is not None
        for row in SpansProcessor().process(entry.batch).tables["traces"].rows
    ]


# --- quotas -----------------------------------------------------------------------------------------------


def test_a_tenant_beyond_its_quota_is_asked_to_come_again_and_others_are_not(spool: Spool) -> None:
    clock, counters = Clock(), Counters()
    pipeline = pipeline_of(spool, counters, TenantQuotas(1.0, {"rich": 1000.0}, counters, clock))
    assert pipeline.accept("traces", spans_of("poor", 10), is_json=False).rejected == 0
    with pytest.raises(LimitExceeded, match="tenant 'poor' has sent more than its 1 records per second") as refused:
        pipeline.accept("traces", spans_of("poor", 1), is_json=False)
    assert (refused.value.error_code, refused.value.retry_after_seconds) == ("tenant_quota", 1.0)
    assert pipeline.accept("traces", spans_of("rich", 11), is_json=False).rejected == 0
    clock.now += 1.0
    assert pipeline.accept("traces", spans_of("poor", 1), is_json=False).rejected == 0


def test_of_a_mixed_request_the_part_beyond_its_quota_is_refused_in_part(spool: Spool) -> None:
    counters = Counters()
    pipeline = pipeline_of(spool, counters, TenantQuotas(1.0, {}, counters, Clock()))
    pipeline.accept("traces", spans_of("poor", 20), is_json=False)
    receipt = pipeline.accept("traces", spans_of("poor", 2) + spans_of("other", 3), is_json=False)
    assert (receipt.records, receipt.rejected) == (5, 2)
    assert receipt.reason == "tenant 'poor' has sent more than its 1 records per second"
    assert counters.snapshot()["rejected"]["tenant_quota"] == 2
    assert len(spooled_spans(spool)) == 23


def test_packed_records_are_never_limited(spool: Spool, batch_of: Make, request_record: Make) -> None:
    counters = Counters()
    steps = (KnownTenants(["nobody"], counters), TenantQuotas(0.001, {}, counters, Clock()))
    pipeline = pipeline_of(spool, counters, *steps)
    for number in range(3):
        receipt = pipeline.accept("logs", batch_of(f"b{number}", *[request_record()] * 50), is_json=False)
        assert (receipt.records, receipt.rejected) == (50, 0)


def test_an_unknown_tenant_is_refused_in_part_and_telemetry_without_one_passes(spool: Spool) -> None:
    counters = Counters()
    pipeline = pipeline_of(spool, counters, KnownTenants(["acme"], counters))
    body = spans_of("acme", 1) + spans_of("mallory", 2) + spans_of("", 3)
    receipt = pipeline.accept("traces", body, is_json=False)
    assert (receipt.records, receipt.rejected) == (6, 2)
    assert receipt.reason == "tenant 'mallory' is not known here (TOLLKEEPER_COLLECTOR_TENANTS)"
    assert len(spooled_spans(spool)) == 4
    assert counters.snapshot()["rejected"] == {"unknown_tenant": 2}


def test_no_text_takes_long_to_redact_and_a_long_status_is_cut() -> None:
    began = time.process_time()
    assert TextRedaction(["keys", "emails"]).clean("eyJ-" * 60_000) == "eyJ-" * 60_000
    assert time.process_time() - began < 5
    sent = span_request({"status": {"code": 2, "message": "x" * 4097}}).SerializeToString()
    processed = SpansProcessor().process(SpooledBatch("b", "traces", NOW, sent, True))
    (row,) = processed.tables["traces"].rows
    assert row.status_message == "x" * 4096


def test_a_record_s_own_tenant_is_refused_and_limited_like_a_resource_s(spool: Spool) -> None:
    counters = Counters()
    steps = (RecordTenants(), KnownTenants(["acme", "poor"], counters), TenantQuotas(1.0, {}, counters, Clock()))
    pipeline = pipeline_of(spool, counters, *steps)
    named = [{"name": name, "attributes": {TENANT: name}} for name in ("mallory", "acme", "poor")]
    sent = span_request(*named, {"name": "none"}, {"trace_id": b"", "attributes": {TENANT: "mallory"}})
    receipt = pipeline.accept("traces", sent.SerializeToString(), is_json=False)
    assert (receipt.records, receipt.rejected) == (5, 3)
    assert sorted(spooled_spans(spool)) == ["acme", "none", "poor"]
    pipeline.accept(
        "traces", span_request(*[named[2]] * 20, resource={TENANT: "acme"}).SerializeToString(), is_json=False
    )
    with pytest.raises(LimitExceeded, match="tenant 'poor' has sent more"):
        pipeline.accept("traces", span_request(named[2]).SerializeToString(), is_json=False)


def test_a_metric_is_taken_apart_by_its_points_tenants() -> None:
    metric = Metric(name="m")
    for tenant in ("a", "", "b", "a"):
        point = metric.gauge.data_points.add(as_int=1)
        if tenant:
            point.attributes.add(key=TENANT).value.string_value = tenant
    pieces = MetricsProcessor().by_tenant(metric, "own")
    assert {tenant: len(piece.gauge.data_points) for tenant, piece in pieces.items()} == {"a": 2, "own": 1, "b": 1}
    assert {piece.name for piece in pieces.values()} == {"m"}
    assert MetricsProcessor().by_tenant(Metric(), "own") == {"own": Metric()}


def test_a_foreign_batch_sent_again_is_known_by_its_bytes(spool: Spool) -> None:
    counters = Counters()
    pipeline = pipeline_of(spool, counters)
    for _ in range(3):
        assert pipeline.accept("traces", spans_of("acme", 2), is_json=False).rejected == 0
    assert len(spooled_spans(spool)) == 2
    assert counters.snapshot()["noticed"] == {"duplicate_batches": 2}


# --- memory -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("held", "is_refused"), [(99, False), (100, False), (101, True)])
def test_beyond_its_memory_the_collector_asks_to_come_again(held: int, is_refused: bool) -> None:
    limiter = MemoryLimiter(100, lambda: held)
    if not is_refused:
        limiter.check()
        return
    with pytest.raises(LimitExceeded, match="holds 101 of at most 100 bytes") as refused:
        limiter.check()
    assert refused.value.error_code == "memory_pressure"
    assert refused.value.retry_after_seconds is not None


def test_memory_is_looked_at_four_times_a_second_at_most() -> None:
    clock, looks = Clock(), list[int]()
    limiter = MemoryLimiter(100, lambda: looks.append(1) or 0, clock)  # type: ignore[func-returns-value]
    for _ in range(10):
        limiter.check()
    clock.now += 0.25
    limiter.check()
    assert len(looks) == 2


# --- cardinality and redaction ----------------------------------------------------------------------------


def rows_after(step: Any, processor: Any, message: Any, received_at_ns: int = NOW) -> Processed:
    batch = SpooledBatch("b", processor.signal, received_at_ns, message.SerializeToString())
    processed: Processed = processor.process(batch)
    step.apply(processed, batch)
    return processed


def test_series_beyond_the_bound_go_to_an_overflow_bucket_until_the_hour_is_over() -> None:
    limiter = CardinalityLimiter(max_series=2, max_names=10)
    message = gauge_request("m", *(({"id": str(number % 4)}, 1.0) for number in range(8)))
    processed = rows_after(limiter, MetricsProcessor(), message)
    assert [row.attributes.get("id") for row in processed.tables["metrics"].rows] == ["0", "1", None, None] * 2
    assert processed.tables["metrics"].rows[2].attributes == {"otel.metric.overflow": "true"}
    assert processed.noticed == {"overflow_series": 4}
    later = rows_after(limiter, MetricsProcessor(), gauge_request("m", ({"id": "3"}, 1.0)), NOW + 3_600_000_000_000)
    assert later.noticed == {}


def test_what_all_tenants_together_have_is_bounded_too_until_the_next_hour() -> None:
    limiter = CardinalityLimiter(max_series=10, max_names=10, max_remembered=3)  # a name, and two series of it
    message = gauge_request("m", *(({"id": str(number % 3)}, 1.0) for number in range(6)))
    processed = rows_after(limiter, MetricsProcessor(), message)
    assert [row.attributes.get("id") for row in processed.tables["metrics"].rows] == ["0", "1", None] * 2
    other = rows_after(limiter, SpansProcessor(), span_request({"name": "n"}))
    assert other.noticed == {"overflow_label": 1}
    later = rows_after(limiter, MetricsProcessor(), gauge_request("m", ({"id": "2"}, 1.0)), NOW + 3_600_000_000_000)
    assert later.noticed == {}


def test_names_beyond_the_bound_are_called_overflow_and_say_what_they_were() -> None:
    limiter = CardinalityLimiter(max_series=2, max_names=2)
    processed = rows_after(limiter, SpansProcessor(), span_request(*({"name": f"n{number}"} for number in range(3))))
    assert [row.name for row in processed.tables["traces"].rows] == ["n0", "n1", "overflow"]
    assert processed.tables["traces"].rows[2].attributes == {"tollkeeper.original.name": "n2"}
    for number in range(3):
        metrics = rows_after(limiter, MetricsProcessor(), gauge_request(f"m{number}", ({}, 1.0)))
    assert metrics.tables["metrics"].rows[0].name == "overflow"


@pytest.mark.parametrize(
    ("what", "text", "expected"),
    [
        (["keys"], "used sk-abcdefghijklmnop1234 here", "used [key] here"),
        (["keys"], "Bearer abcdefghijklmnop1234", "[key]"),
        (["keys"], "risk-averse and sk-short", "risk-averse and sk-short"),
        (["keys"], "ada@example.com", "ada@example.com"),
        (["emails"], "from ada@example.com.", "from [email]."),
        (["keys", "emails"], "AKIAABCDEFGHIJKLMNOP of ada@example.com", "[key] of [email]"),
        ([], "sk-abcdefghijklmnop1234", "sk-abcdefghijklmnop1234"),
    ],
)
def test_secrets_in_values_are_replaced(what: Any, text: str, expected: str) -> None:
    message = span_request({"attributes": {"a": text}, "status": {"code": 2, "message": text}}, resource={"r": text})
    event = message.resource_spans[0].scope_spans[0].spans[0].events.add(name="e")
    event.attributes.extend(key_values({"said": text}))
    link = message.resource_spans[0].scope_spans[0].spans[0].links.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    link.attributes.extend(key_values({"why": text}))
    (row,) = rows_after(Redaction(what), SpansProcessor(), message).tables["traces"].rows
    assert row.attributes == {"a": expected}
    assert (row.status_message, row.resource_attributes, row.event_attributes) == (
        expected,
        {"r": expected},
        [{"said": expected}],
    )
    assert row.link_attributes == [{"why": expected}]
