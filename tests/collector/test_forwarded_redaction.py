"""What goes on to other destinations says no secret and, unless it is asked for, nothing that was said."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.forwarding.redacted_messages import RedactedMessages
from collector.receiving import make_processors
from collector.spool import Signal, SpooledBatch
from tests.collector.conftest import make_request_record, packed_batch
from tests.collector.otlp_samples import OPENINFERENCE, OPENLLMETRY, gauge_request, key_values, span_request

SECRET = "sk-abcdefghij0123456789"


def cleaned(signal: Signal, payload: bytes, *, keeps_prompts: bool = False, what: Any = ("keys",)) -> bytes:
    batch = SpooledBatch("b", signal, 1, payload)
    found = RedactedMessages(make_processors(), what, keeps_prompts=keeps_prompts).clean(batch)
    assert found is not None and found.batch_id == "b"
    return found.payload


def test_every_place_of_a_span_that_may_hold_a_secret_is_looked_at():
    request = span_request(
        {"attributes": {"a": SECRET, "list": ["fine", SECRET], "number": 7}}, resource={"host": f"at {SECRET}"}
    )
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.status.message = f"refused {SECRET}"
    span.events.add(name="retry").attributes.extend(key_values({"why": SECRET, "password": "open"}))
    span.links.add(trace_id=b"1" * 16).attributes.extend(key_values({"why": SECRET}))
    request.resource_spans[0].scope_spans[0].scope.attributes.extend(key_values({"x": SECRET}))
    text = str(ExportTraceServiceRequest.FromString(cleaned("traces", request.SerializeToString())))
    assert SECRET not in text and "open" not in text
    assert text.count("[key]") == 7 and "int_value: 7" in text and '"fine"' in text


def test_points_and_log_lines_are_redacted_too():
    points = gauge_request("heat", ({"note": SECRET}, 1.0))
    assert SECRET.encode() not in cleaned("metrics", points.SerializeToString())
    lines = ExportLogsServiceRequest()
    line = lines.resource_logs.add().scope_logs.add().log_records.add(event_name="note")
    line.body.string_value = f"mail ada@example.com about {SECRET}"
    both = cleaned("logs", lines.SerializeToString(), what=("keys", "emails"))
    assert b"mail [email] about [key]" in both


@pytest.mark.parametrize("dialect", [OPENINFERENCE, OPENLLMETRY])
def test_what_was_said_goes_on_only_where_it_is_asked_for(dialect: Any):
    payload = span_request({"attributes": dialect}).SerializeToString()
    assert b"a secret" not in cleaned("traces", payload) and b"tiny" in cleaned("traces", payload)
    assert b"a secret" in cleaned("traces", payload, keeps_prompts=True)
    assert b"Bearer abc" not in cleaned("traces", payload, keeps_prompts=True)


def test_a_genai_event_s_body_and_its_own_attributes_are_what_was_said():
    lines = ExportLogsServiceRequest()
    line = lines.resource_logs.add().scope_logs.add().log_records.add(event_name="gen_ai.user.message")
    line.body.string_value = "hush"
    line.attributes.extend(key_values({"content": "hush", "gen_ai.system": "openai"}))
    payload = lines.SerializeToString()
    assert b"hush" not in cleaned("logs", payload) and b"openai" in cleaned("logs", payload)
    assert cleaned("logs", payload, keeps_prompts=True).count(b"hush") == 2


def test_a_gateway_s_packed_records_stay_as_they_were_signed():
    payload = packed_batch("gateway/1", make_request_record(upstream_message=SECRET))
    assert cleaned("logs", payload) == payload


def test_what_cannot_be_read_does_not_go_on():
    cleaning = RedactedMessages(make_processors(), (), keeps_prompts=True)
    assert cleaning.clean(SpooledBatch("b", "traces", 1, b"\xff")) is None


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20) | st.integers(0, 9) | st.lists(st.text(max_size=4))))
def test_what_holds_no_secret_goes_on_as_it_came(attributes: dict[str, Any]):
    payload = span_request({"attributes": attributes}).SerializeToString()
    assert cleaned("traces", payload, keeps_prompts=True, what=()) == payload
