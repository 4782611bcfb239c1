"""Endpoints from a file and from SRV records, and what names either."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from backends.endpoints.dns_reader import DnsReader
from backends.endpoints.file_reader import FileReader
from backends.endpoints.source import (
    DnsSource,
    FileSource,
    KubernetesSource,
    check_source,
    parse_endpoint,
    parse_source,
    shown_endpoint,
)
from backends.endpoints.watch import EndpointWatch
from contracts.errors import ConfigurationError
from contracts.serving.configuration import TargetSpec
from tests.backends.endpoints.conftest import until
from tests.conftest import poll


class DnsServer:
    """Answers every question with what `records` holds: (priority, weight, port, target), or a code."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int, int, str]] = []
        self.code = dns.rcode.NOERROR
        self.ttl = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                data, sender = self._socket.recvfrom(4096)
            except OSError:
                return
            query = dns.message.from_wire(data)
            answer = dns.message.make_response(query)
            answer.flags |= dns.flags.RA
            answer.set_rcode(self.code)
            if self.records and self.code == dns.rcode.NOERROR:
                texts = [" ".join(map(str, record)) for record in self.records]
                answer.answer.append(dns.rrset.from_text(query.question[0].name, self.ttl, "IN", "SRV", *texts))
            self._socket.sendto(answer.to_wire(), sender)


@pytest.fixture
def dns_server() -> Iterator[DnsServer]:
    server = DnsServer()
    yield server
    server.close()


def test_srv_records_of_the_lowest_priority_are_followed(dns_server: DnsServer):
    dns_server.records = [(1, 5, 8000, "one.example."), (1, 0, 8001, "two.example."), (2, 5, 8002, "later.example.")]
    reader = DnsReader(DnsSource("_http._tcp.vllm.example", ("127.0.0.1", dns_server.port)))
    watch = EndpointWatch("dns", reader, lambda: None)
    try:
        until(watch, ("one.example", 8000), ("two.example", 8001))
        dns_server.records = [(1, 5, 8001, "two.example.")]
        until(watch, ("two.example", 8001))
        dns_server.code = dns.rcode.SERVFAIL
        poll(lambda: "does not answer" in watch.fault, "the fault", 10)
        assert watch.endpoints == frozenset({("two.example", 8001)}), "what it said last stays"
        dns_server.code = dns.rcode.NXDOMAIN
        until(watch)
    finally:
        watch.close()


def test_a_file_is_followed_and_one_that_is_wrong_changes_nothing(tmp_path: Path):
    file = tmp_path / "endpoints"
    file.write_text("# of the second rack\n10.0.0.1:8000\n\n[fd00::1]:8000  # new\n")
    watch = EndpointWatch("file", FileReader(file), lambda: None)

    def write(text: str) -> None:
        (tmp_path / "draft").write_text(text)
        os.replace(tmp_path / "draft", file)

    try:
        until(watch, ("10.0.0.1", 8000), ("fd00::1", 8000))
        write("10.0.0.2:8000\nsecret words\n")
        poll(lambda: "line 2" in watch.fault, "the fault", 10)
        assert "secret" not in watch.fault
        assert watch.endpoints == frozenset({("10.0.0.1", 8000), ("fd00::1", 8000)})
        write("10.0.0.2:8000\n")
        until(watch, ("10.0.0.2", 8000))
        file.unlink()
        poll(lambda: "cannot be read" in watch.fault, "the fault", 10)
        assert watch.endpoints == frozenset({("10.0.0.2", 8000)})
    finally:
        watch.close()


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("file:/etc/endpoints", FileSource(Path("/etc/endpoints"))),
        ("dns:_http._tcp.vllm.example", DnsSource("_http._tcp.vllm.example")),
        ("dns://10.0.0.10/vllm.example", DnsSource("vllm.example", ("10.0.0.10", 53))),
        ("dns://[fd00::1]:5353/vllm.example", DnsSource("vllm.example", ("fd00::1", 5353))),
        ("kubernetes:models/vllm", KubernetesSource("models", "vllm")),
        ("kubernetes:models/vllm:http", KubernetesSource("models", "vllm", "http")),
    ],
)
def test_what_a_source_is_read_from(text: str, source: object):
    assert parse_source(text) == source


@pytest.mark.parametrize(
    "text",
    [
        "",
        "file:",
        "file:endpoints",
        "dns:",
        "dns:a b",
        "dns://10.0.0.1",
        "kubernetes:vllm",
        "kubernetes:A/b",
        "consul:x",
    ],
)
def test_an_unusable_source_is_refused_with_the_forms_there_are(text: str):
    with pytest.raises(ConfigurationError) as refused:
        parse_source(text)
    assert "file:" in refused.value.message


@pytest.mark.parametrize("text", ["", "a", "a:0", "a:65536", "a:x", ":1", "a b:1", "http://a:1", "user@a:1"])
def test_an_unusable_endpoint_is_refused(text: str):
    with pytest.raises(ConfigurationError):
        parse_endpoint(text)


@pytest.mark.parametrize("text", ["a:1", "a:65535", "[fd00::1]:8000"])
def test_an_endpoint_is_shown_as_it_was_given(text: str):
    assert shown_endpoint(parse_endpoint(text)) == text


@pytest.mark.parametrize(
    ("url", "settings", "says"),
    [
        ("http://{address}/v1", {}, "no settings.discover"),
        ("http://a/v1", {"discover": "dns:a"}, "{address}"),
        ("http://a/v1", {"slow_start_seconds": 5}, "without discover"),
        ("http://{address}/v1", {"discover": 1}, "use a text"),
        ("http://{address}/v1", {"discover": "redis:a"}, "give file:PATH"),
        ("http://{address}/v1", {"discover": "dns:a", "slow_start_seconds": -1}, "0 to 3600"),
        ("http://{address}/v1", {"discover": "dns:a", "slow_start_seconds": True}, "0 to 3600"),
    ],
)
def test_settings_that_cannot_be_used_together_name_the_target(url: str, settings: dict[str, object], says: str):
    with pytest.raises(ConfigurationError) as refused:
        check_source(TargetSpec("t1", "pool", "openai_http", url, settings=settings))
    assert "'t1'" in refused.value.message and says in refused.value.message
