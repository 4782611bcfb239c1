import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from backends.telemetry.otlp import build_export_request
from collector.processors.attributes import (
    MAX_ATTRIBUTES,
    MAX_VALUE_CHARACTERS,
    attribute_map,
    packed_attribute_map,
    text_of,
)
from collector.processors.logs import LogsProcessor
from collector.processors.signal import SignalProcessor
from collector.processors.spans import SpansProcessor
from collector.processors.times import NEWEST_NS, OLDEST_NS, clamp_time
from collector.rows import Processed
from collector.spool import SpooledBatch
from contracts.recording.dialects import CONTENT_ATTRIBUTES, SPELLINGS, reading_of
from contracts.recording.records import AttemptRecord, DeviceRecord, KvRecord, StepRecord, encode_record
from contracts.recording.telemetry import SpanRow

Make = Callable[..., Any]

NOW = 1_795_000_000_000_000_000


def attribute(key: str, value: Any) -> KeyValue:
    kinds = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value", bytes: "bytes_value"}
    return KeyValue(key=key, value=AnyValue(**{kinds[type(value)]: value}))


def processed_logs(body: bytes) -> Processed:
    return LogsProcessor().process(SpooledBatch("b", "logs", NOW, body))


def processed_span(resource: dict[str, Any] | None = None, **fields: Any) -> Processed:
    request = ExportTraceServiceRequest()
    part = request.resource_spans.add()
    part.resource.attributes.extend(attribute(key, value) for key, value in (resource or {}).items())
    span = {
        "trace_id": b"t" * 16,
        "span_id": b"s" * 8,
        "name": "n",
        "start_time_unix_nano": NOW - 5,
        "end_time_unix_nano": NOW,
        **fields,
    }
    part.scope_spans.add().spans.add(**span)
    return SpansProcessor().process(SpooledBatch("b", "traces", NOW, request.SerializeToString()))


def only_span(**fields: Any) -> SpanRow:
    (row,) = processed_span(**fields).tables["traces"].rows
    assert isinstance(row, SpanRow)
    return row


def test_a_packed_record_becomes_a_row_of_its_table(request_record: Make, batch_of: Make) -> None:
    record = request_record(started_at_ns=NOW)
    attempt = AttemptRecord(request_id=record.request_id, number=2, started_at_ns=NOW, duration_ns=1)
    step = StepRecord(engine="e", sequence=1, started_at_ns=NOW, busy_ns=1)
    kv = KvRecord(engine="e", sequence=1, at_ns=NOW, event="stored")
    device = DeviceRecord(host="h", sequence=1, at_ns=NOW, device="GPU-1", power_watts=70.5)
    batch = batch_of("b", record) + build_export_request(
        "b",
        "engine",
        [
            ("tollkeeper.attempt", NOW, encode_record(attempt)),
            ("tollkeeper.step", NOW, encode_record(step)),
            ("tollkeeper.kv", NOW, encode_record(kv)),
            ("tollkeeper.device", NOW, encode_record(device)),
        ],
    )
    processed = processed_logs(batch)
    assert {name: rows.rows for name, rows in processed.tables.items()} == {
        "requests": [record],
        "attempts": [attempt],
        "engine_steps": [step],
        "kv_events": [kv],
        "gpu_samples": [device],
    }
    assert processed.broken == []
    assert processed.noticed == {}


@pytest.mark.parametrize(
    ("event_name", "packed"),
    [
        ("tollkeeper.request", b""),
        ("tollkeeper.request", b"junk"),
        ("tollkeeper.request", b"\x91\xa9request.9"),
        ("tollkeeper.step", encode_record(KvRecord(engine="e", sequence=1, at_ns=NOW, event="stored"))),
        ("tollkeeper.unheard_of", encode_record(KvRecord(engine="e", sequence=1, at_ns=NOW, event="stored"))),
    ],
)
def test_a_broken_packed_record_is_set_aside_and_its_neighbours_pass(
    request_record: Make, batch_of: Make, event_name: str, packed: bytes
) -> None:
    bad = build_export_request("b", "g", [(event_name, NOW, packed)])
    processed = processed_logs(batch_of("b", request_record()) + bad + batch_of("b", request_record()))
    assert len(processed.tables["requests"].rows) == 2
    (broken,) = processed.broken
    assert (broken.index, broken.cause, broken.payload) == (1, "undecodable_record", packed)
    assert LogsProcessor().survey(LogsProcessor().parse(bad)).unreadable == 1


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (-OLDEST_NS, -OLDEST_NS),
        (-OLDEST_NS - 1, -OLDEST_NS),
        (0, 0),
        (NEWEST_NS, NEWEST_NS),
        (NEWEST_NS + 1, NEWEST_NS),
    ],
)
def test_times_are_clamped_at_the_edges_and_the_row_says_so(
    request_record: Make, batch_of: Make, offset: int, expected: int
) -> None:
    assert clamp_time(NOW + offset, NOW) == NOW + expected
    processed = processed_logs(batch_of("b", request_record(started_at_ns=NOW + offset)))
    (row,) = processed.tables["requests"].rows
    assert row.started_at_ns == NOW + expected
    clamped = offset != expected
    assert processed.noticed == ({"clamped_time": 1} if clamped else {})
    assert row.who.tags.get("tollkeeper.clock") == (f"clamped from {NOW + offset}" if clamped else None)
    assert row.who.tags["feature"] == "search"


def test_steps_kv_events_and_gpu_samples_are_clamped_too() -> None:
    records = [
        ("tollkeeper.step", 0, encode_record(StepRecord(engine="e", sequence=1, started_at_ns=0, busy_ns=1))),
        ("tollkeeper.kv", 0, encode_record(KvRecord(engine="e", sequence=1, at_ns=2**63, event="stored"))),
        ("tollkeeper.device", 0, encode_record(DeviceRecord(host="h", sequence=1, at_ns=0, device="GPU-1"))),
    ]
    processed = processed_logs(build_export_request("b", "e", records))
    assert processed.tables["engine_steps"].rows[0].started_at_ns == NOW - OLDEST_NS
    assert processed.tables["kv_events"].rows[0].at_ns == NOW + NEWEST_NS
    assert processed.tables["gpu_samples"].rows[0].at_ns == NOW - OLDEST_NS
    assert processed.noticed == {"clamped_time": 3}


def test_processing_a_batch_again_gives_the_same_rows(request_record: Make, batch_of: Make) -> None:
    body = batch_of("b", request_record(started_at_ns=5), request_record())
    assert processed_logs(body) == processed_logs(body)


@pytest.mark.parametrize(("old", "current"), [(spelling.foreign, spelling.current) for spelling in SPELLINGS])
def test_old_genai_spellings_are_stored_under_the_current_name(old: str, current: str) -> None:
    row = only_span(attributes=[attribute(old, "7")])
    assert row.attributes == {current: "7"}


def test_a_current_spelling_wins_over_an_old_one_in_any_order() -> None:
    old, current = attribute("gen_ai.usage.prompt_tokens", 1), attribute("gen_ai.usage.input_tokens", 2)
    for attributes in ([old, current], [current, old]):
        assert only_span(attributes=attributes).attributes == {"gen_ai.usage.input_tokens": "2"}


FOREIGN_CONTENT = [
    "gen_ai.prompt.0.content",
    "gen_ai.completion.12.tool_calls.0.arguments",
    "traceloop.entity.input",
    "input.value",
    "output.value",
    "llm.prompts",
    "llm.input_messages.0.message.content",
    "llm.output_messages.0.message.content",
    "retrieval.documents.0.document.content",
    "ai.prompt.messages",
    "ai.response.text",
]


@pytest.mark.parametrize(
    "name", ["gen_ai.prompt.name", "input.mime_type", "llm.model_name", "ai.response.id", "llm.provider"]
)
def test_what_only_sounds_like_content_is_kept(name: str) -> None:
    assert only_span(attributes=[attribute(name, "value")]).attributes == {reading_of(name).name: "value"}


def test_an_event_of_a_message_keeps_its_names_and_loses_its_words() -> None:
    said = [attribute("content", "a secret"), attribute("gen_ai.system", "openai")]
    events = [{"name": "gen_ai.user.message", "attributes": said}, {"name": "retry", "attributes": said[:1]}]
    processed = processed_span(events=events)
    (row,) = processed.tables["traces"].rows
    assert row.event_attributes == [{"gen_ai.provider.name": "openai"}, {"content": "a secret"}]
    assert processed.noticed == {"dropped_content": 1}


@pytest.mark.parametrize("name", [*sorted(CONTENT_ATTRIBUTES), *FOREIGN_CONTENT])
def test_what_was_said_is_not_stored(name: str) -> None:
    event = {"name": "e", "attributes": [attribute(name, "a secret")]}
    processed = processed_span(attributes=[attribute(name, "a secret"), attribute("kept", True)], events=[event])
    (row,) = processed.tables["traces"].rows
    assert row.attributes == {"kept": "true"}
    assert row.event_attributes == [{}]
    assert processed.noticed == {"dropped_content": 2}


def test_the_body_of_a_genai_event_is_not_stored_and_that_of_a_log_line_is() -> None:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    records.add(event_name="gen_ai.user.message", time_unix_nano=NOW).body.string_value = "a secret"
    records.add(time_unix_nano=NOW, severity_number=9, severity_text="INFO").body.string_value = "a log line"
    processed = processed_logs(request.SerializeToString())
    assert [row.body for row in processed.tables["logs"].rows] == ["", "a log line"]
    assert processed.noticed == {"dropped_content": 1}


def test_a_span_keeps_its_identity_resource_events_and_links() -> None:
    row = only_span(
        resource={"service.name": "app", "tollkeeper.tenant.id": "acme"},
        kind=3,
        status={"code": 2, "message": "broke"},
        parent_span_id=b"p" * 8,
        events=[{"name": "e", "time_unix_nano": NOW - 1, "attributes": [attribute("k", 1)]}],
        links=[{"trace_id": b"l" * 16, "span_id": b"l" * 8, "trace_state": "x=y"}],
    )
    assert (row.service, row.tenant, row.kind, row.status, row.status_message) == (
        "app",
        "acme",
        "client",
        "error",
        "broke",
    )
    assert (row.started_at_ns, row.duration_ns, row.parent_span_id) == (NOW - 5, 5, b"p" * 8)
    assert (row.event_times_ns, row.event_names, row.event_attributes) == ([NOW - 1], ["e"], [{"k": "1"}])
    assert (row.link_trace_ids, row.link_span_ids, row.link_trace_states) == ([b"l" * 16], [b"l" * 8], ["x=y"])


def test_a_spans_own_tenant_wins_over_its_resources() -> None:
    row = only_span(
        resource={"tollkeeper.tenant.id": "resource"}, attributes=[attribute("tollkeeper.tenant.id", "span")]
    )
    assert row.tenant == "span"


def test_a_negative_duration_is_zero_and_counted() -> None:
    processed = processed_span(start_time_unix_nano=NOW, end_time_unix_nano=NOW - 1)
    assert processed.tables["traces"].rows[0].duration_ns == 0
    assert processed.noticed == {"negative_duration": 1}


def test_absurd_span_times_fit_the_store() -> None:
    row = only_span(start_time_unix_nano=0, end_time_unix_nano=2**64 - 1)
    assert (row.started_at_ns, row.duration_ns) == (NOW - OLDEST_NS, OLDEST_NS + NEWEST_NS)


@pytest.mark.parametrize(
    "ids", [{"trace_id": b""}, {"trace_id": bytes(16)}, {"span_id": b"s" * 7}, {"span_id": bytes(8)}]
)
def test_a_span_without_its_ids_is_set_aside(ids: dict[str, Any]) -> None:
    processed = processed_span(**ids)
    assert processed.tables == {}
    assert [broken.cause for broken in processed.broken] == ["invalid_span"]


def test_attributes_become_text() -> None:
    nested = AnyValue()
    nested.array_value.values.add(int_value=1)
    nested.array_value.values.add().kvlist_value.values.add(key="k").value.bool_value = True
    nested.array_value.values.add()
    assert json.loads(text_of(nested)) == [1, {"k": True}, None]
    assert text_of(AnyValue(double_value=float("nan"))) == "nan"
    assert text_of(AnyValue(double_value=0.1)) == "0.1"
    assert text_of(AnyValue(bytes_value=b"\x01\xff")) == "01ff"
    assert text_of(AnyValue(int_value=-5)) == "-5"
    assert text_of(AnyValue()) == ""


def test_too_many_attributes_and_too_long_values_are_cut_and_counted() -> None:
    noticed: list[str] = []
    many = [attribute(f"a{n}", 1) for n in range(MAX_ATTRIBUTES + 1)]
    assert len(attribute_map(many[:-1], noticed)) == MAX_ATTRIBUTES
    assert noticed == []
    assert len(attribute_map(many, noticed)) == MAX_ATTRIBUTES
    exact, over = "x" * MAX_VALUE_CHARACTERS, "x" * (MAX_VALUE_CHARACTERS + 1)
    assert attribute_map([attribute("exact", exact), attribute("over", over)], noticed) == {
        "exact": exact,
        "over": exact,
    }
    assert noticed == ["dropped_attributes", "truncated_value"]


def test_a_request_merged_from_several_senders_falls_into_their_batches(request_record: Make, batch_of: Make) -> None:
    processor = LogsProcessor()
    one, two = batch_of("one", request_record()), batch_of("two", request_record())
    merged = one + two + one
    parts = dict(processor.split(processor.parse(merged), merged))
    assert set(parts) == {"one", "two"}
    assert parts["two"] == two
    assert parts["one"] == one + one


@pytest.mark.parametrize("processor", [LogsProcessor(), SpansProcessor()])
@given(body=st.binary(max_size=200))
def test_no_bytes_break_a_processor(processor: SignalProcessor[Any], body: bytes) -> None:
    try:
        message = processor.parse(body)
    except Exception as error:
        assert type(error).__name__ == "InvalidRequest"
        return
    processor.survey(message)
    processor.process(SpooledBatch("b", processor.signal, NOW, body))


def packed_text(name: bytes, text: str) -> bytes:
    return key_field(name) + KeyValue(value=AnyValue(string_value=text)).SerializeToString()


def key_field(name: bytes) -> bytes:
    return b"\x0a" + bytes([len(name)]) + name


def test_a_name_that_is_stated_twice_renames_nobody_elses_attributes() -> None:
    name = b"gen_ai.prompt.97.content"
    packed_attribute_map([key_field(name) + packed_text(b"harmless.note", "x" * 300)], [])
    assert packed_attribute_map([packed_text(name, "what was said")], []) == {}


def test_a_name_whose_length_is_spelt_at_length_leaves_every_value_readable() -> None:
    name = b"n" * 72
    start = b"\x0a\xc8\x00" + name  # the length's second byte says nothing
    for rest in (b"?" * 97, b"\x12\x5f\x0a\x5d" + b"\xff" * 93):
        said = b"q" * 121 + rest
        value = AnyValue(bytes_value=said).SerializeToString()
        packed = start + b"\x12" + bytes([len(value) & 0x7F | 0x80, len(value) >> 7]) + value
        assert packed_attribute_map([packed], []) == {name.decode(): said.hex()}
