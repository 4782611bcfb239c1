import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

from backends.telemetry.otlp import PackedBatch, build_export_request, parse_export_request, rejected_records
from contracts.errors import InvalidRequest

RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["tollkeeper.request", "tollkeeper.step"]), st.integers(0, 2**64 - 1), st.binary(max_size=300)
    ),
    max_size=8,
)


@given(batch_id=st.text(), service_name=st.text(), records=RECORDS)
def test_a_batch_reads_back_as_it_was_built(
    batch_id: str, service_name: str, records: list[tuple[str, int, bytes]]
) -> None:
    body = build_export_request(batch_id, service_name, records)
    assert parse_export_request(body) == PackedBatch(batch_id, service_name, records)
    assert build_export_request(batch_id, service_name, records) == body


def test_foreign_log_records_are_left_out_of_a_packed_batch() -> None:
    request = ExportLogsServiceRequest.FromString(build_export_request("b", "s", [("tollkeeper.request", 1, b"x")]))
    request.resource_logs[0].scope_logs[0].log_records.add().body.string_value = "an ordinary log line"
    assert parse_export_request(request.SerializeToString()).records == [("tollkeeper.request", 1, b"x")]


def test_an_empty_request_is_an_empty_batch() -> None:
    assert parse_export_request(b"") == PackedBatch("", "", [])


@pytest.mark.parametrize("body", [b"\xff", b"{}", b"\x0a\x7f\x00"])
def test_a_body_that_is_not_protobuf_is_refused_with_its_size(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match=f"body of {len(body)} bytes") as caught:
        parse_export_request(body)
    assert caught.value.error_code == "malformed_protobuf"


def test_the_answer_tells_how_many_records_were_rejected() -> None:
    response = ExportLogsServiceResponse()
    assert rejected_records(response.SerializeToString()) == (0, "")
    response.partial_success.rejected_log_records = 2
    response.partial_success.error_message = "2 broken"
    assert rejected_records(response.SerializeToString()) == (2, "2 broken")
    with pytest.raises(InvalidRequest):
        rejected_records(b"\xff")
