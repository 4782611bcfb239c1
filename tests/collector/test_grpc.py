"""OTLP over gRPC, on a real socket, as senders see it."""

import gzip
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from backends.segment_log.segments import SegmentLog
from backends.telemetry.otlp import TRACES_PATH, parse_logs
from collector.processors.spans import SpansProcessor
from collector.spool import Spool
from tests.collector.otlp_samples import gauge_request, span_request

Make = Callable[..., Any]
SECONDS = 20.0


@pytest.fixture(scope="module")
def channel(narrow_collector: Any) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{narrow_collector.grpc_port}") as opened:
        yield opened


def refused(call: Callable[[], Any]) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return raised.value


def memory_kb(process_id: int) -> int:
    status = Path(f"/proc/{process_id}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Write a header for HTTP/2 without an entry in its table; both are below 127 bytes."""
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


CALL = b"".join(
    literal(name, value)
    for name, value in (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/opentelemetry.proto.collector.logs.v1.LogsService/Export"),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
)
RESET = struct.pack(">I", 8)
FLOODS = {
    "streams": lambda number: frame(1, 4, 2 * number + 1, CALL),
    "streams that are reset": lambda number: frame(1, 4, 2 * number + 1, CALL) + frame(3, 0, 2 * number + 1, RESET),
    "continuations": lambda number: frame(9, 0, 1, literal(b"a", b"b") * 100) if number else frame(1, 0, 1, CALL),
    "pings": lambda number: frame(6, 0, 0, b"12345678"),
    "settings": lambda number: frame(4, 0, 0, struct.pack(">HI", 3, 100)),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_frames_on_one_connection_takes_little_memory(start_collector: Make, flood: str) -> None:
    collector = start_collector()
    before = memory_kb(collector.process.pid)
    with socket.create_connection(("127.0.0.1", collector.grpc_port), timeout=10) as line:
        drain = threading.Thread(target=discard, args=(line,), daemon=True)
        drain.start()
        try:
            line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(4, 1, 0))
            for first in range(0, 60_000, 500):
                line.sendall(b"".join(FLOODS[flood](number) for number in range(first, first + 500)))
        except OSError:
            pass  # it ended the connection
        assert memory_kb(collector.process.pid) - before < 60_000
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        deadline = time.monotonic() + SECONDS
        while not exported(channel):  # its calls are given up once its connection is seen to be gone
            assert time.monotonic() < deadline
            time.sleep(0.05)


def exported(channel: grpc.Channel) -> bool:
    """Send a span; return whether it was taken, or refused because too many calls run."""
    try:
        TraceServiceStub(channel).Export(span_request({"name": "a"}), timeout=SECONDS)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        return False
    return True


def discard(line: socket.socket) -> None:
    with suppress(OSError):
        while line.recv(65536):
            pass


def test_all_three_signals_are_taken(start_collector: Make, batch_of: Make, request_record: Make) -> None:
    collector = start_collector()
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        TraceServiceStub(channel).Export(span_request({"name": "a"}), timeout=SECONDS)
        TraceServiceStub(channel).Export(
            span_request({"name": "b"}), timeout=SECONDS, compression=grpc.Compression.Gzip
        )
        MetricsServiceStub(channel).Export(gauge_request("m", ({}, 1.0)), timeout=SECONDS)
        LogsServiceStub(channel).Export(parse_logs(batch_of("b1", request_record())), timeout=SECONDS)
        health = collector.health()
        assert health["received_records"] == {"traces": 2, "metrics": 1, "logs": 1}
        # The same batch over the other way is known.
        assert collector.post(batch_of("b2", request_record())).status_code == 200
        again = span_request({"name": "a"}).SerializeToString()
        assert collector.post(again, TRACES_PATH).status_code == 200
        assert collector.health()["noticed"]["duplicate_batches"] == 1


def test_a_bad_span_is_told_as_partial_success(channel: grpc.Channel) -> None:
    answer = TraceServiceStub(channel).Export(span_request({}, {"span_id": bytes(8)}), timeout=SECONDS)
    assert answer.partial_success.rejected_spans == 1
    assert answer.partial_success.error_message == "1 of 2 records cannot be read"


def test_what_is_no_request_is_an_invalid_argument(channel: grpc.Channel, narrow_collector: Any) -> None:
    export: Any = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
    error: Any = refused(lambda: export(b"\xff\xff", timeout=SECONDS))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "the body of 2 bytes is not a protobuf ExportTraceServiceRequest"
    assert narrow_collector.health()["rejected"]["malformed_protobuf"] >= 1


def test_a_large_message_is_refused_plain_and_inflated_and_the_collector_lives(
    channel: grpc.Channel, narrow_collector: Any
) -> None:
    bomb = span_request({"name": "n" * 50_000})
    assert len(gzip.compress(bomb.SerializeToString())) < 2000  # the bound on what is inflated
    for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
        call = TraceServiceStub(channel).Export
        error: Any = refused(lambda: call(bomb, timeout=SECONDS, compression=compression))  # noqa: B023
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert TraceServiceStub(channel).Export(ExportTraceServiceRequest(), timeout=SECONDS) is not None
    assert narrow_collector.health()["status"] in {"ok", "store_unreachable"}


def test_a_full_spool_asks_to_come_again_and_says_when(start_collector: Make) -> None:
    collector = start_collector(spool_max_bytes=100)
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        error: Any = refused(lambda: TraceServiceStub(channel).Export(span_request({}), timeout=SECONDS))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    assert b"type.googleapis.com/google.rpc.RetryInfo\x12\x04\x0a\x02\x08\x05" in details  # 5 seconds
    assert details.startswith(b"\x08\x08")  # code 8
    assert collector.health()["rejected"] == {"spool_full": 1}


def test_an_unknown_method_is_unimplemented(channel: grpc.Channel) -> None:
    call: Any = channel.unary_unary("/opentelemetry.proto.collector.profiles.v1.ProfilesService/Export")
    error: Any = refused(lambda: call(b"", timeout=SECONDS))
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED


def test_spans_that_wait_for_a_decision_are_decided_when_the_collector_is_stopped(
    start_collector: Make, tmp_path: Path
) -> None:
    collector = start_collector(collector_sample_share=0, collector_sample_wait_seconds=3600)
    with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
        request = span_request({"name": "fine"}, {"name": "faulty", "status": {"code": 2}})
        TraceServiceStub(channel).Export(request, timeout=SECONDS)
    assert collector.health()["spool_bytes"] == 0
    assert collector.terminate() == 0
    spool = Spool(SegmentLog(tmp_path / "data" / "spool", max_bytes=1 << 20))
    (entry,) = spool.read(spool.cursor, max_bytes=1 << 20)
    spool.close()
    assert entry.batch is not None
    assert [row.name for row in SpansProcessor().process(entry.batch).tables["traces"].rows] == ["faulty"]


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(SECONDS)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("data", [b"", PREFACE[:10], PREFACE])
def test_an_address_beyond_its_share_loses_its_oldest_connection_and_others_are_served(
    start_collector: Make, data: bytes
) -> None:
    collector = start_collector(max_connections=12, max_connections_per_address=3)
    with ExitStack() as held:
        opened = []
        for _ in range(4):
            made = socket.create_connection(("127.0.0.1", collector.grpc_port), 10, source_address=("127.0.0.2", 0))
            opened.append(held.enter_context(made))
            made.sendall(data)
            time.sleep(0.05)  # so that they are idle in this order
        assert is_closed(opened[0])
        with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
            TraceServiceStub(channel).Export(span_request({"name": "a"}), timeout=SECONDS)


@pytest.mark.parametrize("data", [b"", PREFACE[:10], PREFACE])
def test_a_connection_that_never_begins_is_closed(start_collector: Make, data: bytes) -> None:
    collector = start_collector(head_seconds=1)
    with socket.create_connection(("127.0.0.1", collector.grpc_port), 10) as made:
        made.sendall(data)
        assert is_closed(made)


def test_a_long_request_passes_while_another_connection_stands_still(start_collector: Make) -> None:
    collector = start_collector()
    with socket.create_connection(("127.0.0.1", collector.grpc_port), 10) as silent:
        silent.sendall(PREFACE)
        with grpc.insecure_channel(f"127.0.0.1:{collector.grpc_port}") as channel:
            request = span_request(*({"name": "n" * 4000} for _ in range(2000)))
            assert TraceServiceStub(channel).Export(request, timeout=SECONDS).partial_success.rejected_spans == 0
    assert collector.health()["received_records"]["traces"] == 2000
