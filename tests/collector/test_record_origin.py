"""Records of gateways are taken from who has the installation's key alone, over HTTP and gRPC; others' telemetry from
anybody.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from backends.telemetry.otlp import build_export_request
from contracts.recording.names import BATCH_ID, BATCH_SIGNATURE
from contracts.recording.records import EVENT_NAMES, RequestRecord, encode_record
from tests.collector.conftest import RECORD_KEY, CollectorProcess, make_request_record, packed_batch

EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = CollectorProcess(tmp_path_factory.mktemp("origin") / "data", store_url="http://127.0.0.1:9")
    yield made.start()
    made.close()


def batch(key: str | None, batch_id: str = "b", service: str = "tollkeeper-gateway", **changes: Any) -> bytes:
    record = make_request_record(**changes)
    packed = [(EVENT_NAMES[RequestRecord], record.started_at_ns, encode_record(record))]
    return build_export_request(batch_id, service, packed, None if key is None else key.encode())


def message(body: bytes) -> ExportLogsServiceRequest:
    return ExportLogsServiceRequest.FromString(body)


def other_batch_id(body: bytes) -> bytes:
    changed = message(body)
    for attribute in changed.resource_logs[0].resource.attributes:
        if attribute.key == BATCH_ID:
            attribute.value.string_value = "another"
    return changed.SerializeToString()


def second_batch_id(body: bytes) -> bytes:
    """Put another id before the signed one, so that a captured batch would be stored again."""
    changed = message(body)
    signed = list(changed.resource_logs[0].resource.attributes)
    del changed.resource_logs[0].resource.attributes[:]
    changed.resource_logs[0].resource.attributes.add(key=BATCH_ID).value.string_value = "another"
    changed.resource_logs[0].resource.attributes.extend(signed)
    return changed.SerializeToString()


def other_record(body: bytes) -> bytes:
    changed = message(body)
    dear = make_request_record(cost_pico_usd=900_000 * 10**12)
    changed.resource_logs[0].scope_logs[0].log_records[0].body.bytes_value = encode_record(dear)
    return changed.SerializeToString()


def one_more(body: bytes) -> bytes:
    changed = message(body)
    records = changed.resource_logs[0].scope_logs[0].log_records
    records.append(records[0])
    return changed.SerializeToString()


def beside_a_signed_one(body: bytes) -> bytes:
    return body + batch(None, "beside")


FORGED: dict[str, Callable[[], bytes]] = {
    "unsigned": lambda: batch(None),
    "with another key": lambda: batch("another key of some thirty-two characters"),
    "under another batch id": lambda: other_batch_id(batch(RECORD_KEY)),
    "under a second batch id": lambda: second_batch_id(batch(RECORD_KEY)),
    "with another record": lambda: other_record(batch(RECORD_KEY)),
    "with one more": lambda: one_more(batch(RECORD_KEY)),
    "beside a signed one": lambda: beside_a_signed_one(batch(RECORD_KEY)),
}


def waiting(collector: CollectorProcess) -> int:
    return int(collector.health()["spool_bytes"])


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_record_is_refused_over_http_and_grpc(collector: CollectorProcess, how: str) -> None:
    body, before = FORGED[how](), waiting(collector)
    answer = collector.post(body)
    assert answer.status_code == 401, answer.text
    as_json = json_format.MessageToJson(message(body))
    assert collector.post(as_json.encode(), content_type="application/json").status_code == 401
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        export: Any = channel.unary_unary(EXPORT)
        with pytest.raises(grpc.RpcError) as refused:
            export(body, timeout=10)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    details = str(refused.value.details())
    assert "record_signing_key" in details and RECORD_KEY not in details
    assert waiting(collector) == before


def test_what_a_gateway_signed_is_taken_over_http_grpc_and_json_and_merged_with_others(
    collector: CollectorProcess,
) -> None:
    before = waiting(collector)
    assert collector.post(packed_batch("one", make_request_record())).status_code == 200
    as_json = json_format.MessageToJson(message(packed_batch("two", make_request_record())))
    assert collector.post(as_json.encode(), content_type="application/json").status_code == 200
    merged = packed_batch("three", make_request_record()) + packed_batch("four", make_request_record())
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        send: Any = channel.unary_unary(EXPORT)
        send(merged, timeout=10)
    assert waiting(collector) > before


def test_other_telemetry_needs_no_signature(collector: CollectorProcess) -> None:
    body = {
        "resourceLogs": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
                "scopeLogs": [{"logRecords": [{"body": {"stringValue": "sold"}, "eventName": "shop.sold"}]}],
            }
        ]
    }
    answer = collector.post(json.dumps(body).encode(), content_type="application/json")
    assert (answer.status_code, answer.json()) == (200, {})


def test_a_gateway_and_two_collectors_of_an_installation_share_the_secret_file(tmp_path: Path) -> None:
    """The first to start makes it; nothing is set in the environment."""
    found = []
    for name in ("one", "two"):
        made = CollectorProcess(tmp_path / name, store_url="http://127.0.0.1:9")
        del made.environment["TOLLKEEPER_RECORD_SIGNING_KEY"]
        (tmp_path / name).mkdir()
        (tmp_path / name / "secrets").symlink_to(tmp_path / "secrets")
        (tmp_path / "secrets").mkdir(exist_ok=True)
        try:
            made.start()
            key = (tmp_path / "secrets" / "record_signing_key").read_text().strip()
            found.append((made.post(batch(key)).status_code, made.post(batch(None)).status_code, key))
        finally:
            made.close()
    assert [each[:2] for each in found] == [(200, 401)] * 2 and found[0][2] == found[1][2]


def test_a_signature_is_an_attribute_that_any_hop_keeps() -> None:
    attributes = message(batch(RECORD_KEY)).resource_logs[0].resource.attributes
    assert BATCH_SIGNATURE in [attribute.key for attribute in attributes]
