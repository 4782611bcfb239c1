"""A collector process to test against, and records to send it."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.telemetry.otlp import CONTENT_TYPE, LOGS_PATH, build_export_request
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.records import EVENT_NAMES, RequestRecord, encode_record
from tests import warm_start
from tests.ports import find_free_port, find_free_ports

PATIENCE_SECONDS = 120.0
RECORD_KEY = "the key that gateways of these tests sign with"


def wait_until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """Poll a condition and give its first true value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what} did not happen within {seconds:g} seconds")


def make_request_record(**changes: Any) -> RequestRecord:
    now = time.time_ns()
    fields: dict[str, Any] = {
        "request_id": uuid7(now).bytes,
        "started_at_ns": now,
        "duration_ns": 1_500_000_000,
        "who": Identity("acme", user="ada", tags={"feature": "search"}),
        "stream": True,
        "requested_model": "tiny",
        "model": "tiny",
        "provider": "scripted",
        "ttft_ns": 80_000_000,
        "gaps": pack_gaps([0, 2000, 1900]),
        "gap_clock": "gateway",
        "usage": Usage(input_text=12, output_text=4),
        "cost_pico_usd": 123_456_789,
        **changes,
    }
    return RequestRecord(**fields)


def packed_batch(batch_id: str, *records: RequestRecord) -> bytes:
    packed = [(EVENT_NAMES[type(record)], record.started_at_ns, encode_record(record)) for record in records]
    return build_export_request(batch_id, "tollkeeper-gateway", packed, RECORD_KEY.encode())


class CollectorProcess:
    """A collector's process on free ports. It may be killed and started again on the same data directory."""

    def __init__(self, data: Path, **settings: object) -> None:
        self.port, self.health_port, self.grpc_port = find_free_ports(3)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")},
            "TOLLKEEPER_DATA": str(data),
            "TOLLKEEPER_RECORD_SIGNING_KEY": RECORD_KEY,
            "TOLLKEEPER_COLLECTOR_PORT": str(self.port),
            "TOLLKEEPER_COLLECTOR_HEALTH_PORT": str(self.health_port),
            "TOLLKEEPER_OTLP_GRPC_PORT": str(self.grpc_port),
            **{f"TOLLKEEPER_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self.log = data.parent / f"{data.name}.collector.log"
        self.client = httpx.Client(timeout=10)
        self.process: warm_start.WarmProcess | None = None

    def start(self) -> "CollectorProcess":
        with self.log.open("ab") as log:
            self.process = warm_start.start("collector", env=self.environment, stdout=log, stderr=log)
        wait_until(self._answers, "the collector's start")
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.client.get(f"http://127.0.0.1:{self.health_port}/health").status_code == 200
        except httpx.TransportError:
            return False

    def post(
        self, body: bytes, path: str = LOGS_PATH, content_type: str = CONTENT_TYPE, **headers: str
    ) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"http://127.0.0.1:{self.port}{path}"
        return self.client.post(url, content=body, headers={"Content-Type": content_type, **named})

    def health(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"http://127.0.0.1:{self.health_port}/health").json()
        return found

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_SECONDS)

    def close(self) -> None:
        self.client.close()
        if self.process is not None and self.process.poll() is None:
            self.kill()


@pytest.fixture
def start_collector(tmp_path: Path) -> Iterator[Callable[..., CollectorProcess]]:
    """Starts collectors with the given settings; without `store_url` there is no store behind them."""
    started: list[CollectorProcess] = []

    def start(data: Path = tmp_path / "data", **settings: object) -> CollectorProcess:
        settings.setdefault("store_url", f"http://127.0.0.1:{find_free_port()}")
        collector = CollectorProcess(data, **settings)
        started.append(collector)
        return collector.start()

    yield start
    for collector in started:
        collector.close()


@pytest.fixture(scope="module")
def narrow_collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    """One collector with small limits for all bad input: it must live through all of it."""
    collector = CollectorProcess(
        tmp_path_factory.mktemp("narrow") / "data",
        store_url=f"http://127.0.0.1:{find_free_port()}",
        collector_max_body_bytes=200_009,
        collector_max_decompressed_bytes=2000,
    )
    yield collector.start()
    collector.close()


@pytest.fixture
def request_record() -> Callable[..., RequestRecord]:
    return make_request_record


@pytest.fixture
def batch_of() -> Callable[..., bytes]:
    return packed_batch


@pytest.fixture
def eventually() -> Callable[..., Any]:
    return wait_until
