"""What a sender sees, on a real socket. No store stands behind these collectors: acknowledging must not need one."""

import gzip
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from backends.telemetry.otlp import TRACES_PATH, build_export_request, rejected_records
from contracts.metering.gaps import pack_gaps
from tests import warm_start
from tests.collector.conftest import RECORD_KEY

Make = Callable[..., Any]

JSON = "application/json"
OTLP_JSON_SPAN = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "app"}}]},
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": "5b8efff798038103d269b633813fc60c",
                            "spanId": "eee19b7ec3c1b174",
                            "name": "chat tiny",
                            "kind": 3,
                            "startTimeUnixNano": "1544712660000000000",
                            "endTimeUnixNano": "1544712661000000000",
                            "anUnknownField": 1,
                        }
                    ]
                }
            ],
        }
    ]
}


def span_request(trace_id: bytes = b"t" * 16, span_id: bytes = b"s" * 8) -> bytes:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(trace_id=trace_id, span_id=span_id, name="n")
    return request.SerializeToString()


def nested_json(depth: int) -> bytes:
    return b'{"resourceLogs":' + b"[" * depth + b"]" * depth + b"}"


def test_a_batch_is_acknowledged_though_no_store_answers(
    start_collector: Make, batch_of: Make, request_record: Make
) -> None:
    collector = start_collector()
    response = collector.post(batch_of("b1", request_record(), request_record()))
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/x-protobuf"
    assert rejected_records(response.content) == (0, "")
    health = collector.health()
    assert health["spool_bytes"] > 0
    assert health["received_records"] == {"logs": 2}
    assert health["exported_records"] == 0
    assert 0 <= health["oldest_age_seconds"] < 60


def test_a_store_that_does_not_answer_shows_in_health_but_not_in_readiness(
    start_collector: Make, eventually: Make
) -> None:
    collector = start_collector()
    eventually(lambda: collector.health()["status"] == "store_unreachable", "the status")
    assert collector.health()["store_reachable"] is False
    assert collector.client.get(f"http://127.0.0.1:{collector.health_port}/ready").status_code == 200


def test_the_same_batch_again_is_acknowledged_and_not_spooled(
    start_collector: Make, batch_of: Make, request_record: Make
) -> None:
    collector = start_collector()
    body = batch_of("b1", request_record())
    collector.post(body)
    held = collector.health()["spool_bytes"]
    assert collector.post(body).status_code == 200
    health = collector.health()
    assert health["spool_bytes"] == held
    assert health["noticed"]["duplicate_batches"] == 1


def test_gzip_bodies_of_several_members_are_read(start_collector: Make, batch_of: Make, request_record: Make) -> None:
    collector = start_collector()
    batch = batch_of("b1", request_record())
    members = gzip.compress(batch[:10]) + gzip.compress(batch[10:]) + gzip.compress(b"") * 62
    assert collector.post(members, content_encoding="gzip").status_code == 200
    assert collector.health()["received_records"] == {"logs": 1}


def test_gzip_bodies_are_read(start_collector: Make, batch_of: Make, request_record: Make) -> None:
    collector = start_collector()
    response = collector.post(gzip.compress(batch_of("b1", request_record())), content_encoding="gzip")
    assert response.status_code == 200
    assert collector.health()["received_records"] == {"logs": 1}


def test_otlp_json_is_read_and_answered_in_json(start_collector: Make) -> None:
    collector = start_collector()
    response = collector.post(json.dumps(OTLP_JSON_SPAN).encode(), TRACES_PATH, JSON)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == JSON
    assert response.json() == {}
    assert collector.health()["received_records"] == {"traces": 1}


def test_records_that_can_never_be_read_are_told_as_partial_success(
    start_collector: Make, request_record: Make, batch_of: Make
) -> None:
    collector = start_collector()
    good = batch_of("b1", request_record())
    junk = [("tollkeeper.request", 1, b"junk"), ("tollkeeper.nonsense", 1, b"")]
    bad = build_export_request("b1", "g", junk, RECORD_KEY.encode())
    response = collector.post(good + bad)  # protobuf messages merge by concatenation
    assert response.status_code == 200
    assert rejected_records(response.content) == (2, "2 of 3 records cannot be read")
    response = collector.post(span_request(span_id=bytes(8)), TRACES_PATH)
    partial = ExportTraceServiceResponse.FromString(response.content).partial_success
    assert (partial.rejected_spans, partial.error_message) == (1, "1 of 1 records cannot be read")


def test_an_empty_request_is_a_success_and_leaves_nothing_behind(start_collector: Make) -> None:
    collector = start_collector()
    response = collector.post(b"")
    assert (response.status_code, response.content) == (200, ExportLogsServiceResponse().SerializeToString())
    assert collector.health()["spool_bytes"] == 0


@pytest.mark.parametrize(
    ("body", "content_type", "headers", "status", "cause"),
    [
        (b"\xff\xff", "application/x-protobuf", {}, 400, "malformed_protobuf"),
        (b"\x0a\x7f\x00", "application/x-protobuf", {}, 400, "malformed_protobuf"),
        (b"\x0a\x05\x0a\x03\x0a\x01\xff", "application/x-protobuf", {}, 400, "malformed_protobuf"),
        (b"{", JSON, {}, 400, "malformed_json"),
        (b"[]", JSON, {}, 400, "malformed_json"),
        (b'{"resourceLogs": 1}', JSON, {}, 400, "malformed_json"),
        (b"\xff\xfe", JSON, {}, 400, "malformed_json"),
        (nested_json(90_000), JSON, {}, 400, "malformed_json"),
        (b'{"traceId": "zz"}', JSON, {}, 400, "malformed_json"),
        (b"x", "text/plain", {}, 415, "unsupported_media_type"),
        (b"x", "", {}, 415, "unsupported_media_type"),
        (b"x", "application/x-protobuf", {"content_encoding": "br"}, 415, "unsupported_media_type"),
        (b"x", "application/x-protobuf", {"content_encoding": "gzip"}, 400, "malformed_gzip"),
        (
            gzip.compress(bytes(2001), mtime=0),
            "application/x-protobuf",
            {"content_encoding": "gzip"},
            413,
            "body_too_large",
        ),
        (
            gzip.compress(b"", mtime=0) * 65,
            "application/x-protobuf",
            {"content_encoding": "gzip"},
            400,
            "malformed_gzip",
        ),
        (bytes(200_010), "application/x-protobuf", {}, 413, "body_too_large"),
    ],
)
def test_bad_input_is_refused_with_its_status_and_counted(
    narrow_collector: Any,
    body: bytes,
    content_type: str,
    headers: dict[str, str],
    status: int,
    cause: str,
) -> None:
    before = narrow_collector.health()["rejected"].get(cause, 0)
    response = narrow_collector.post(body, content_type=content_type, **headers)
    assert response.status_code == status, response.content
    health = narrow_collector.health()
    assert health["rejected"][cause] == before + 1
    assert health["spool_bytes"] == 0
    assert response.content  # says why, in the sender's encoding
    if content_type == JSON:
        assert response.json()["message"]


def test_other_methods_and_paths_are_not_there(start_collector: Make) -> None:
    collector = start_collector()
    base = f"http://127.0.0.1:{collector.port}"
    assert collector.client.get(f"{base}/v1/logs").status_code == 405
    assert collector.client.post(f"{base}/v1/profiles").status_code == 404


def test_a_chunked_body_without_a_length_is_held_to_the_limit(start_collector: Make) -> None:
    collector = start_collector(collector_max_body_bytes=100_000)

    def endless() -> Any:
        for _ in range(40):
            yield bytes(10_000)

    url = f"http://127.0.0.1:{collector.port}/v1/logs"
    try:
        response = httpx.post(url, content=endless(), headers={"Content-Type": "application/x-protobuf"})
        assert response.status_code == 413
    except httpx.TransportError:
        pass  # answered and closed before all was sent: the sender sees a broken pipe
    assert collector.health()["rejected"] == {"body_too_large": 1}


def test_a_sender_that_stops_sending_is_let_go(start_collector: Make, eventually: Make) -> None:
    collector = start_collector(collector_body_timeout_seconds=0.2)
    head = b"POST /v1/logs HTTP/1.1\r\nHost: ::1\r\nContent-Type: application/x-protobuf\r\nContent-Length: 99\r\n\r\n"
    with socket.create_connection(("127.0.0.1", collector.port)) as half:
        half.sendall(head + b"\x0a")
        assert half.recv(100).startswith(b"HTTP/1.1 408")
    assert collector.health()["rejected"] == {"request_timeout": 1}


def test_bodies_beyond_the_memory_bound_get_429_while_the_first_is_still_coming(
    start_collector: Make, eventually: Make
) -> None:
    collector = start_collector(collector_max_inflight_bytes=1000)
    head = b"POST /v1/logs HTTP/1.1\r\nHost: ::1\r\nContent-Type: application/x-protobuf\r\nContent-Length: 900\r\n\r\n"
    with socket.create_connection(("127.0.0.1", collector.port)) as slow:
        slow.sendall(head)

        def refused() -> httpx.Response | None:
            response = collector.post(bytes(101))
            return response if response.status_code == 429 else None

        response = eventually(refused, "the refusal")
        assert response.headers["retry-after"] == "1"
    eventually(lambda: collector.post(b"").status_code == 200, "the first one's share given back")
    assert collector.health()["rejected"]["memory_pressure"] >= 1


def test_a_full_spool_says_when_to_come_back_and_is_not_ready(
    start_collector: Make, batch_of: Make, request_record: Make
) -> None:
    body = batch_of("0", request_record())
    collector = start_collector(spool_max_bytes=4 * (len(body) + 80))
    statuses = [collector.post(batch_of(str(n), request_record())).status_code for n in range(8)]
    assert statuses == sorted(statuses)
    assert set(statuses) == {200, 429}
    response = collector.post(batch_of("again", request_record()))
    assert response.headers["retry-after"] == "5"
    assert b"TOLLKEEPER_SPOOL_MAX_BYTES" in response.content
    assert collector.health()["rejected"]["spool_full"] >= 1


@pytest.mark.alone
def test_a_large_batch_does_not_hold_up_a_small_one(
    start_collector: Make, batch_of: Make, request_record: Make
) -> None:
    collector = start_collector()
    large = batch_of("large", *[request_record(gaps=pack_gaps([2000] * 200)) for _ in range(10_000)])
    sender = threading.Thread(target=collector.post, args=(large,))
    sender.start()
    longest = 0.0
    while sender.is_alive():
        url = f"http://127.0.0.1:{collector.health_port}/ready"
        longest = max(longest, httpx.get(url).elapsed.total_seconds())
    sender.join()
    assert collector.health()["received_records"] == {"logs": 10_000}
    assert longest < 0.5


def test_sigterm_ends_the_process_cleanly_and_keeps_what_waits(
    start_collector: Make, batch_of: Make, request_record: Make
) -> None:
    collector = start_collector()
    collector.post(batch_of("b1", request_record()))
    held = collector.health()["spool_bytes"]
    assert collector.terminate() == 0
    collector.start()
    assert collector.health()["spool_bytes"] == held


@pytest.mark.parametrize(
    "variable", ["TOLLKEEPER_COLLECTOR_PORT", "TOLLKEEPER_COLLECTOR_HEALTH_PORT", "TOLLKEEPER_OTLP_GRPC_PORT"]
)
def test_a_port_in_use_is_one_line_that_names_the_variable(tmp_path: Path, variable: str) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        started = run_collector(tmp_path, {variable: str(port)})
    assert started.returncode == 2
    assert started.stderr == (
        f"collector: cannot listen on 127.0.0.1 port {port}: it is in use; stop the process that uses it or set "
        f"{variable}\n"
    )


def test_an_unusable_data_directory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    started = run_collector(tmp_path / "file", {"TOLLKEEPER_STORE_PASSWORD": "x"})
    assert started.returncode == 2
    assert started.stderr.startswith(f"collector: directory {tmp_path}/file/spool cannot be written (Not a directory)")
    assert started.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("variable", "value"),
    [("TOLLKEEPER_SPOOL_MAX_BYTES", "much"), ("TOLLKEEPER_COLLECTOR_TENANT_QUOTAS", "acme=much")],
)
def test_an_unusable_setting_is_one_line_that_names_the_variable(tmp_path: Path, variable: str, value: str) -> None:
    started = run_collector(tmp_path, {variable: value})
    assert started.returncode == 2
    assert started.stderr.startswith(f"collector: {variable}: ")
    assert started.stderr.count("\n") == 1


def run_collector(data: Path, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    ports = ("COLLECTOR_PORT", "COLLECTOR_HEALTH_PORT", "OTLP_GRPC_PORT")
    free = {**{f"TOLLKEEPER_{name}": "0" for name in ports}, "TOLLKEEPER_DATA": str(data)}
    return warm_start.run("collector", env={**os.environ, **free, **environment}, timeout=30)
