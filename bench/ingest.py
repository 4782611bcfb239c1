"""What the collector's benchmark sends, and the collector on a core of its own; store and load are on the other."""

import http.client
import json
import random
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import environ
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from backends.telemetry.otlp import CONTENT_TYPE, LOGS_PATH, TRACES_PATH, build_export_request
from bench.load.machine import Cores, pinned_to
from bench.load.processes import PinnedProcess, free_ports, get_json
from bench.records import example_records
from bench.store_process import StoreProcess
from contracts.access.identity import Identity
from contracts.recording.ids import uuid7
from contracts.recording.names import TENANT
from contracts.recording.record_signature import digest_of_records, signature_of_batch
from contracts.recording.records import EVENT_NAMES, RequestRecord, encode_record

BATCH_RECORDS: Final = 500  # what a gateway's shipper sends at one time
SPAN_ATTRIBUTES: Final = 40
BATCH_SPANS: Final = 512  # opentelemetry's batch span processor
_PLACEHOLDER: Final = "00000000-0000-0000-0000-000000000000"
_SIGNATURE: Final = "s" * 64  # in the place of what depends on the batch id
_KEY: Final = "the key that this bench's records are signed with"
_DISTINCT_BATCHES: Final = 20
_SENDERS: Final = 2
_POLL_SECONDS: Final = 0.02
_LOOK_SECONDS: Final = 0.25
_MOST_WAITING_BYTES: Final = 48 << 20  # some inserts' worth: what waits is to be stored, not to pile up


@dataclass(frozen=True, slots=True)
class Payload:
    """A request that can be sent again and again: each time under a name of its own."""

    body: bytes
    path: str
    records: int
    digest: bytes = b""  # of packed records, which are signed again under each name

    def fresh(self) -> bytes:
        """Return this as a batch that nobody has seen."""
        batch_id = str(uuid7(time.time_ns()))
        body = self.body.replace(_PLACEHOLDER.encode(), batch_id.encode())
        if self.digest:
            body = body.replace(_SIGNATURE.encode(), signature_of_batch(_KEY.encode(), batch_id, self.digest).encode())
        return body


def record_payloads(tenants: int, now_ns: int) -> list[Payload]:
    """Create batches of packed records with 200 gaps, spread over tenants."""
    payloads = []
    pool = example_records(BATCH_RECORDS)
    for batch in range(_DISTINCT_BATCHES):
        records = [
            msgspec.structs.replace(
                record,
                started_at_ns=now_ns - index * 1_000_000,
                who=Identity(f"tenant-{(batch * BATCH_RECORDS + index) % tenants}", "search", "ranking", "key_0193"),
            )
            for index, record in enumerate(pool)
        ]
        packed = [(EVENT_NAMES[RequestRecord], one.started_at_ns, encode_record(one)) for one in records]
        body = build_export_request(_PLACEHOLDER, "tollkeeper-gateway", packed, _KEY.encode())
        digest = digest_of_records(packed)
        made = signature_of_batch(_KEY.encode(), _PLACEHOLDER, digest).encode()
        payloads.append(Payload(body.replace(made, _SIGNATURE.encode()), LOGS_PATH, BATCH_RECORDS, digest))
    return payloads


def marked_payload(run: str, now_ns: int) -> bytes:
    """Create one batch whose rows can be found again by their run."""
    records = [msgspec.structs.replace(one, started_at_ns=now_ns, run_id=run) for one in example_records(BATCH_RECORDS)]
    packed = [(EVENT_NAMES[RequestRecord], one.started_at_ns, encode_record(one)) for one in records]
    return build_export_request(str(uuid7(time.time_ns())), "tollkeeper-gateway", packed, _KEY.encode())


def span_payloads(now_ns: int) -> list[Payload]:
    """Create requests of spans with 40 attributes: names and models that repeat, ids and counts that do not."""
    source = random.Random(0)
    payloads = []
    for _ in range(_DISTINCT_BATCHES):
        request = ExportTraceServiceRequest()
        part = request.resource_spans.add()
        for key, value in (("service.name", "shop"), (TENANT, "acme"), ("tollkeeper.batch.id", _PLACEHOLDER)):
            part.resource.attributes.add(key=key).value.string_value = value
        spans = part.scope_spans.add().spans
        for number in range(BATCH_SPANS):
            span = spans.add(
                trace_id=source.randbytes(16),
                span_id=source.randbytes(8),
                name=f"chat model-{number % 5}",
                kind=3,
                start_time_unix_nano=now_ns - number * 1_000_000,
                end_time_unix_nano=now_ns,
            )
            _add_attributes(span, source)
        payloads.append(Payload(request.SerializeToString(), TRACES_PATH, BATCH_SPANS))
    return payloads


def _add_attributes(span: Any, source: random.Random) -> None:
    """A quarter of them differ from span to span, as ids, counts and times do."""
    for number in range(SPAN_ATTRIBUTES - 10):
        span.attributes.add(key=f"app.attribute.{number}").value.string_value = f"value {number} {source.randrange(8)}"
    for number in range(4):
        span.attributes.add(key=f"app.id.{number}").value.string_value = source.randbytes(8).hex()
    for name in ("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens", "app.count.0", "app.count.1"):
        span.attributes.add(key=name).value.int_value = source.randrange(10_000)
    for number in range(2):
        span.attributes.add(key=f"app.seconds.{number}").value.double_value = source.random()


class CollectorRig:
    """A collector on one core in front of a store on the other; use as a context manager."""

    def __init__(self, store: StoreProcess, cores: Cores) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="tollkeeper-bench-collector-")
        self.port = free_ports(3)
        self._health_port = self.port + 1
        address = store.address("writer")
        settings = {
            "TOLLKEEPER_DATA": self._directory.name,
            "TOLLKEEPER_RECORD_SIGNING_KEY": _KEY,
            "TOLLKEEPER_COLLECTOR_PORT": str(self.port),
            "TOLLKEEPER_COLLECTOR_HEALTH_PORT": str(self._health_port),
            "TOLLKEEPER_OTLP_GRPC_PORT": str(self.port + 2),
            "TOLLKEEPER_STORE_URL": address.url,
            "TOLLKEEPER_STORE_USER": address.user,
            "TOLLKEEPER_STORE_PASSWORD": address.password,
        }
        command = [sys.executable, "-m", "collector"]
        environment = {**environ, **settings, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
        home = Path(self._directory.name)
        self._process = PinnedProcess("collector", command, cores.measured, home, **environment)

    def __enter__(self) -> Self:
        self._process.wait_for(self._is_ready)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop()
        self._directory.cleanup()

    @property
    def pid(self) -> int:
        """The collector's process id."""
        return self._process.pid

    @property
    def gateway_environment(self) -> dict[str, str]:
        """Return the variables by which a gateway sends its records here."""
        return {
            "TOLLKEEPER_COLLECTOR_URL": f"http://127.0.0.1:{self.port}",
            "TOLLKEEPER_RECORD_SIGNING_KEY": _KEY,
        }

    def waiting_bytes(self) -> int:
        """Return the bytes in the spool that the store does not have."""
        return int(get_json(self._health_port, "/health")["spool_bytes"])

    def wait_until_exported(self, within_seconds: float) -> bool:
        """Wait until the store has everything; return whether that came to be."""
        deadline = time.monotonic() + within_seconds
        while self.waiting_bytes():
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)  # to ask more often would show in what is measured
        return True

    def _is_ready(self) -> bool:
        try:
            return bool(get_json(self._health_port, "/health")["status"])
        except (OSError, json.JSONDecodeError):
            return False


class Sender:
    """Posts payloads over connections that stay open, as fast as they are acknowledged, or not beyond a rate."""

    def __init__(
        self,
        port: int,
        payloads: Sequence[Payload],
        core: int,
        records_per_second: float = 0.0,
        waiting_bytes: Callable[[], int] | None = None,
    ) -> None:
        """`records_per_second` of 0 is as fast as can be. With `waiting_bytes` it pauses while too much waits there."""
        self._waiting_bytes = waiting_bytes
        self._may_send = threading.Event()
        self._may_send.set()
        self._port = port
        self._payloads = payloads
        self._core = core
        self._rate = records_per_second
        self.acknowledged = 0
        self.refused = 0
        self._lock = threading.Lock()

    def run(self, seconds: float) -> float:
        """Send for so long; return the seconds that it took until the last acknowledgement."""
        began = time.monotonic()
        deadline = began + seconds
        with pinned_to(self._core):
            threads = [threading.Thread(target=self._send, args=(began, deadline)) for _ in range(_SENDERS)]
            threads.append(threading.Thread(target=self._look, args=(deadline,)))
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - began

    def _look(self, deadline: float) -> None:
        while self._waiting_bytes is not None and time.monotonic() < deadline:
            if self._waiting_bytes() > _MOST_WAITING_BYTES:
                self._may_send.clear()
            else:
                self._may_send.set()
            time.sleep(_LOOK_SECONDS)
        self._may_send.set()

    def _send(self, began: float, deadline: float) -> None:
        source = random.Random(secrets.randbits(32))
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        while time.monotonic() < deadline:
            self._may_send.wait()
            payload = source.choice(self._payloads)
            if self._rate and self.acknowledged > (time.monotonic() - began) * self._rate:
                time.sleep(_POLL_SECONDS)
                continue
            status = post(connection, payload.path, payload.fresh())
            with self._lock:
                if status == 200:
                    self.acknowledged += payload.records
                else:
                    self.refused += payload.records
            if status != 200:
                time.sleep(1.0)
        connection.close()


def post(connection: http.client.HTTPConnection, path: str, body: bytes) -> int:
    """Post a request and return the answer's status."""
    connection.request("POST", path, body, {"Content-Type": CONTENT_TYPE})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def seconds_until(condition: Callable[[], bool], within_seconds: float) -> float | None:
    """Return the seconds until a condition holds; `None` if it does not in time."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > within_seconds:
            return None
        time.sleep(_POLL_SECONDS)
    return time.monotonic() - began
