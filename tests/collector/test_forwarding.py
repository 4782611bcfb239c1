"""What is received goes on to another OTLP endpoint and to NATS, at least once, whatever stops meanwhile."""

import asyncio
import gzip
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nats
import pytest

from backends.segment_log.segments import SegmentLog
from collector.counters import Counters
from collector.exporters.backoff import Backoff
from collector.forwarding.forwarder import BatchRefused, DestinationAway, Forwarder, Gathering
from collector.forwarding.jetstream import JetStreamDestination
from collector.forwarding.otlp import OtlpDestination
from collector.spool import Spool, SpooledBatch
from contracts.errors import ConfigurationError
from tests.collector.conftest import CollectorProcess, make_request_record, packed_batch
from tests.collector.otlp_samples import gauge_request, span_request
from tests.conftest import poll
from tests.lossy_network import LossyNetwork
from tests.ports import find_free_port

Start = Callable[..., CollectorProcess]


class OtlpServer:
    """Takes what is posted, or answers as it is told."""

    def __init__(self) -> None:
        self.status = 200
        self.taken: list[tuple[str, str, bytes, str]] = []  # path, batch id, body, authorization
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["content-length"])))
                if server.status == 200:
                    named = self.headers["x-tollkeeper-batch-id"]
                    server.taken.append((self.path, named, body, self.headers.get("authorization", "")))
                self.send_response(server.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def otlp_server() -> Iterator[OtlpServer]:
    server = OtlpServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port, folder = find_free_port(), tmp_path_factory.mktemp("nats")
    binary = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or "nats-server"
    command = [binary, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"nats://127.0.0.1:{port}"
    poll(lambda: asyncio.run(_answers(url)), "the start of nats-server")
    yield url
    process.terminate()
    process.wait()


async def _answers(url: str) -> bool:
    try:
        client = await nats.connect(url, allow_reconnect=False, connect_timeout=1, error_cb=_ignore)
    except Exception:
        return False
    await client.close()
    return True


async def _ignore(error: Exception) -> None:
    pass


async def _messages(url: str, name: str, subject: str, *, make: bool = False) -> list[tuple[str, str, bytes]]:
    """Create a stream, or read all that is in it: subject, id and data."""
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        if make:
            await stream.add_stream(name=name, subjects=[f"{subject}.>"])
            return []
        state = (await stream.stream_info(name)).state
        found = [await stream.get_msg(name, seq) for seq in range(state.first_seq, state.last_seq + 1)]
        return [(one.subject, (one.headers or {})["Nats-Msg-Id"], one.data) for one in found]  # type: ignore[misc]
    finally:
        await client.close()


def batch(number: int, signal: Any = "traces", *, is_named: bool = False) -> SpooledBatch:
    return SpooledBatch(f"b{number}", signal, 1, b"payload %d" % number, is_named)


class Scripted:
    """A destination that fails as it is told."""

    name = "scripted"
    gathering: Gathering | None = None

    def __init__(self, *faults: Exception | None) -> None:
        self.faults = list(faults)
        self.taken: list[str] = []
        self.together: list[list[str]] = []

    def takes(self, one: SpooledBatch) -> bool:
        return one.signal != "metrics"

    def send(self, batches: Sequence[SpooledBatch]) -> None:
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        self.together.append([one.batch_id for one in batches])
        self.taken += self.together[-1]

    def close(self) -> None:
        pass


def forwarder(folder: Path, destination: Any, counters: Counters, max_bytes: int = 1 << 20) -> Forwarder:
    log = SegmentLog(folder / "forward", max_bytes=max_bytes)
    return Forwarder(Spool(log), destination, counters, Backoff(random.Random(1)), clean=lambda one: one)


def test_batches_go_in_order_again_after_a_failure_and_past_what_is_refused(tmp_path: Path):
    counters = Counters()
    destination = Scripted(None, DestinationAway("away"), None, BatchRefused("no"), None)
    sender = forwarder(tmp_path, destination, counters)
    sender.put([batch(1), batch(2), batch(3), batch(4), batch(5, "metrics")])
    sender.start()
    poll(lambda: destination.taken == ["b1", "b2", "b4"], "the sending")
    sender.stop(1.0)
    counted = counters.snapshot()["noticed"]
    assert counted["forwarded_to_scripted"] == 3 and counted["refused_by_scripted"] == 1


def test_what_waits_is_sent_after_the_next_start(tmp_path: Path):
    away = forwarder(tmp_path, Scripted(*[DestinationAway("away")] * 1000), Counters())
    away.put([batch(1)])
    away.start()
    poll(lambda: away.failure == "away", "the failure")
    away.stop(0.0)
    destination = Scripted()
    again = forwarder(tmp_path, destination, Counters())
    again.start()
    poll(lambda: destination.taken == ["b1"], "the sending")
    assert again.waiting_bytes == 0
    again.stop(1.0)


def test_a_destination_whose_spool_is_full_holds_up_nothing(tmp_path: Path):
    counters = Counters()
    sender = forwarder(tmp_path, Scripted(), counters, max_bytes=4096)
    for number in range(10):
        sender.put([SpooledBatch(f"b{number}", "traces", 1, b"x" * 1000, False)])
    assert counters.snapshot()["noticed"]["not_forwarded_to_scripted"] > 0
    sender.start()
    sender.stop(1.0)


def received(number: int, at_ns: int) -> SpooledBatch:
    return SpooledBatch(f"b{number}", "traces", at_ns, b"x" * 1000, False)


def test_batches_come_together_once_they_are_large_or_old_enough(tmp_path: Path):
    destination = Scripted(DestinationAway("away"))
    destination.gathering = Gathering(max_bytes=2500, seconds=60.0)
    sender = forwarder(tmp_path, destination, Counters())
    now = time.time_ns()
    sender.put([received(1, now), received(2, now)])
    sender.start()
    sender.stop(0.5)
    assert destination.together == [] and not destination.faults == []
    again = forwarder(tmp_path, destination, Counters())
    again.put([received(3, now), received(4, now - 1)])
    again.start()
    poll(lambda: destination.together == [["b1", "b2", "b3"]], "the batches that are large enough")
    assert destination.faults == [], "and they came again as they were"
    again.put([received(5, now), received(6, now)])
    poll(lambda: destination.together[1:] == [["b4", "b5", "b6"]], "the next ones")
    again.put([received(7, now - 60_000_000_000)])
    poll(lambda: destination.together[2:] == [["b7"]], "the old one")
    again.put([received(8, now + 3600 * 10**9)])
    poll(lambda: destination.together[3:] == [["b8"]], "one of a clock that was set back since")
    again.stop(1.0)


@pytest.mark.parametrize("status", [429, 503, 401, 404])
def test_an_endpoint_that_may_take_it_later_is_asked_again(otlp_server: OtlpServer, status: int):
    destination = OtlpDestination(otlp_server.url, {})
    otlp_server.status = status
    with pytest.raises(DestinationAway, match=str(status)):
        destination.send([batch(1)])
    otlp_server.status = 400
    with pytest.raises(BatchRefused, match="400"):
        destination.send([batch(1)])
    destination.close()


def test_packed_records_are_not_for_others(otlp_server: OtlpServer):
    destination = OtlpDestination(otlp_server.url, {})
    assert not destination.takes(batch(1, "logs", is_named=True))
    assert destination.takes(batch(1, "logs")) and destination.takes(batch(1, "traces", is_named=True))
    destination.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: OtlpDestination("collector:4318", {}),
        lambda: JetStreamDestination("http://a", "x"),
        lambda: JetStreamDestination("nats://a", ""),
        lambda: JetStreamDestination("nats://a", "x.>"),
        lambda: JetStreamDestination("nats://a", ".x"),
    ],
)
def test_an_unusable_address_is_refused(make: Callable[[], object]):
    with pytest.raises(ConfigurationError, match="TOLLKEEPER_FORWARD_"):
        make()


@pytest.mark.service
def test_a_batch_that_comes_again_is_in_the_stream_once(nats_url: str):
    destination = JetStreamDestination(nats_url, "once")
    with pytest.raises(DestinationAway, match="no stream"):
        destination.send([batch(1)])
    asyncio.run(_messages(nats_url, "ONCE", "once", make=True))
    for number in (1, 2, 1):
        destination.send([batch(number)])
    destination.close()
    found = asyncio.run(_messages(nats_url, "ONCE", "once"))
    assert found == [("once.traces", "b1", b"payload 1"), ("once.traces", "b2", b"payload 2")]


@pytest.mark.service
def test_a_network_that_loses_packets_holds_nothing_up_and_nothing_is_lost_or_doubled(nats_url: str):
    asyncio.run(_messages(nats_url, "LOSSY", "lossy", make=True))
    large = SpooledBatch("large", "traces", 1, bytes(900_000), False)
    with LossyNetwork(int(nats_url.rpartition(":")[2])) as network:
        destination = JetStreamDestination(f"nats://127.0.0.1:{network.port}", "lossy", answer_seconds=0.5)
        destination.send([batch(1)])
        network.cut()
        for _ in range(2):  # over the connection that is there, then without one
            with pytest.raises(DestinationAway, match="does not acknowledge"):
                destination.send([large])
        network.mend()
        network.cut_answers()
        with pytest.raises(DestinationAway):
            destination.send([large])
        network.mend()
        destination.send([large, batch(2)])
        destination.close()
    found = [name for _, name, _ in asyncio.run(_messages(nats_url, "LOSSY", "lossy"))]
    assert found == ["b1", "large", "b2"]


@pytest.mark.service
def test_a_killed_collector_sends_on_all_that_it_acknowledged(
    start_collector: Start, otlp_server: OtlpServer, nats_url: str
):
    asyncio.run(_messages(nats_url, "ALL", "books", make=True))
    otlp_server.status = 503
    collector = start_collector(
        forward_otlp=otlp_server.url,
        forward_otlp_headers="authorization=Bearer secret",
        forward_nats=nats_url,
        forward_nats_subject="books",
    )
    spans, points = span_request({}).SerializeToString(), gauge_request("heat", ({}, 1.0)).SerializeToString()
    told = span_request(
        {"attributes": {"note": "my key is sk-abcdefghij0123456789", "gen_ai.prompt": "hush", "api_key": "x"}}
    )
    assert collector.post(told.SerializeToString(), "/v1/traces").status_code == 200
    assert collector.post(spans, "/v1/traces").status_code == 200
    assert collector.post(points, "/v1/metrics").status_code == 200
    assert collector.post(packed_batch("gateway/1", make_request_record())).status_code == 200
    poll(lambda: bool(collector.health()["forwarding"]["otlp"]["failure"]), "the failure")
    assert "secret" not in str(collector.health())
    collector.kill()
    otlp_server.status = 200
    collector.start()
    poll(lambda: len(otlp_server.taken) >= 3, "the sending on")
    redacted = span_request({"attributes": {"note": "my key is [key]", "api_key": "[redacted]"}})
    assert {(path, body) for path, _, body, _ in otlp_server.taken} == {
        ("/v1/traces", spans),
        ("/v1/traces", redacted.SerializeToString()),
        ("/v1/metrics", points),
    }
    assert {authorization for *_, authorization in otlp_server.taken} == {"Bearer secret"}
    poll(lambda: len(asyncio.run(_messages(nats_url, "ALL", "books"))) == 4, "the stream's four messages")
    found = {subject: named for subject, named, _ in asyncio.run(_messages(nats_url, "ALL", "books"))}
    assert set(found) == {"books.traces", "books.metrics", "books.logs"} and found["books.logs"] == "gateway/1"
