"""Records of requests that no gateway signed: does a collector take any, over HTTP or gRPC?

Starts a collector and sends it forged batches in several ways: without a signature, with one by another key, with one
of another batch, under other media types, compressed, and behind a signed batch in the same request.
"""

import contextlib
import gzip
import secrets
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from backends.telemetry.otlp import CONTENT_TYPE, build_export_request
from bench.crashing.service import Service
from bench.load.processes import free_ports
from bench.report import Report
from contracts.access.identity import Identity
from contracts.recording.ids import uuid7
from contracts.recording.names import BATCH_SIGNATURE
from contracts.recording.records import EVENT_NAMES, RequestRecord, encode_record

_EXPORT: Final = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
_SERVICE: Final = "tollkeeper-gateway"
_ROUNDS: Final = 5
_PORTS: Final = 4


def measure(report: Report) -> None:
    """Send forgeries and count those that are taken; what a gateway signed must be taken."""
    key = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory(prefix="tollkeeper-forged-") as home:
        port = free_ports(_PORTS)
        settings = {
            "TOLLKEEPER_COLLECTOR_PORT": str(port),
            "TOLLKEEPER_OTLP_GRPC_PORT": str(port + 1),
            "TOLLKEEPER_COLLECTOR_HEALTH_PORT": str(port + 2),
            "TOLLKEEPER_STORE_URL": f"http://127.0.0.1:{port + 3}",
            "TOLLKEEPER_RECORD_SIGNING_KEY": key,
        }
        collector = Service("collector", "collector", Path(home), f"http://127.0.0.1:{port + 2}/health", settings)
        collector.start()
        try:
            taken, sent, refused = _send_all(port, key.encode())
        finally:
            collector.end()
    for way, accepted in taken.items():
        report.add(f"forged_records_{way}", accepted, "records", must=0, better="lower", n=sent[way])
    report.add("forged_records_own_refused", refused, "records", must=0, better="lower", n=2 * _ROUNDS)


def _send_all(port: int, key: bytes) -> tuple[dict[str, int], dict[str, int], int]:
    taken, sent = {"http": 0, "grpc": 0}, {"http": 0, "grpc": 0}
    refused = 0
    url = f"http://127.0.0.1:{port}/v1/logs"
    with grpc.insecure_channel(f"127.0.0.1:{port + 1}") as channel:
        export: Callable[..., bytes] = channel.unary_unary(_EXPORT)
        for _ in range(_ROUNDS):
            for forgery in _forgeries(key):
                for headers, body in _encodings(forgery):
                    sent["http"] += 1
                    taken["http"] += _posts(url, headers, body)
                sent["grpc"] += 1
                taken["grpc"] += _exports(export, forgery)
            refused += not _posts(url, {"Content-Type": CONTENT_TYPE}, batch_of_record(key))
            refused += not _exports(export, batch_of_record(key))
    return taken, sent, refused


def _forgeries(key: bytes) -> list[bytes]:
    """Return unsigned and wrongly signed batches. Concatenated messages are one message in protobuf."""
    other = secrets.token_urlsafe(32).encode()
    moved = ExportLogsServiceRequest.FromString(batch_of_record(None))
    signed = ExportLogsServiceRequest.FromString(batch_of_record(key))
    for attribute in signed.resource_logs[0].resource.attributes:
        if attribute.key == BATCH_SIGNATURE:
            moved.resource_logs[0].resource.attributes.append(attribute)
    return [
        batch_of_record(None),
        batch_of_record(other),
        moved.SerializeToString(),
        batch_of_record(key) + batch_of_record(None),
    ]


def batch_of_record(key: bytes | None) -> bytes:
    """Return an OTLP request with one record of an expensive request, signed if there is a key."""
    now = time.time_ns()
    record = RequestRecord(
        request_id=uuid7(now).bytes,
        started_at_ns=now,
        duration_ns=1,
        who=Identity("globex"),
        cost_pico_usd=900_000 * 10**12,
    )
    packed = [(EVENT_NAMES[RequestRecord], now, encode_record(record))]
    return build_export_request(str(uuid7(now)), _SERVICE, packed, key)


def _encodings(body: bytes) -> list[tuple[dict[str, str], bytes]]:
    as_json = json_format.MessageToJson(ExportLogsServiceRequest.FromString(body)).encode()
    return [
        ({"Content-Type": CONTENT_TYPE}, body),
        ({"Content-Type": CONTENT_TYPE, "Content-Encoding": "gzip"}, gzip.compress(body)),
        ({"Content-Type": "application/json"}, as_json),
        ({"Content-Type": CONTENT_TYPE, "Host": "evil.example"}, body),
    ]


def _posts(url: str, headers: dict[str, str], body: bytes) -> bool:
    with contextlib.suppress(urllib.error.HTTPError):
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10) as answer:
            return bool(answer.status == 200)
    return False


def _exports(export: Callable[..., bytes], body: bytes) -> bool:
    try:
        export(body, timeout=10)
    except grpc.RpcError:
        return False
    return True
