"""Endpoints of a Kubernetes service, from an API server that streams, breaks off and forgets."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backends.endpoints.kubernetes_reader import KubernetesReader
from backends.endpoints.kubernetes_watch import KubernetesApi, check_api
from backends.endpoints.source import KubernetesSource
from backends.endpoints.watch import EndpointWatch
from contracts.errors import ConfigurationError
from tests.backends.endpoints.api_server import ApiServer, slice_of
from tests.backends.endpoints.conftest import until
from tests.conftest import poll

Follow = Callable[..., EndpointWatch]


@pytest.fixture
def follow(server: ApiServer) -> Iterator[Follow]:
    watches: list[EndpointWatch] = []

    def begin(port: str = "http", **api: object) -> EndpointWatch:
        reader = KubernetesReader(KubernetesSource("models", "vllm", port), KubernetesApi(server.url, **api))  # type: ignore[arg-type]
        watches.append(EndpointWatch("vllm", reader, lambda: None))
        return watches[-1]

    yield begin
    for watch in watches:
        watch.close()


def watched(server: ApiServer) -> None:
    poll(lambda: server.watching == 1, "a watch", 10)


def test_endpoints_are_listed_and_followed(server: ApiServer, follow: Follow):
    server.put(slice_of("one", "10.0.0.1", "10.0.0.2"))
    watch = follow()
    until(watch, ("10.0.0.1", 8000), ("10.0.0.2", 8000))
    watched(server)
    server.put(slice_of("two", "10.0.0.3"))
    until(watch, ("10.0.0.1", 8000), ("10.0.0.2", 8000), ("10.0.0.3", 8000))
    server.put(slice_of("one", "10.0.0.2"))
    until(watch, ("10.0.0.2", 8000), ("10.0.0.3", 8000))
    server.delete("two")
    until(watch, ("10.0.0.2", 8000))
    assert len([request for request in server.requests if "watch" not in request]) == 1, "listed once"
    assert server.requests[0]["labelSelector"] == "kubernetes.io/service-name=vllm"
    assert server.requests[0]["path"] == "/apis/discovery.k8s.io/v1/namespaces/models/endpointslices"


def test_long_lists_are_read_page_by_page(server: ApiServer, follow: Follow):
    server.page = 2
    for number in range(5):
        server.put(slice_of(f"s{number}", f"10.0.0.{number}"))
    until(follow(), *((f"10.0.0.{number}", 8000) for number in range(5)))


@pytest.mark.parametrize(
    ("conditions", "counts"),
    [
        ({}, True),
        ({"ready": True}, True),
        ({"ready": False}, False),
        ({"ready": False, "serving": True, "terminating": True}, False),
        ({"ready": True, "terminating": True}, False),
    ],
)
def test_an_endpoint_counts_if_it_is_ready_and_does_not_terminate(
    server: ApiServer, follow: Follow, conditions: dict[str, bool], counts: bool
):
    server.put(slice_of("one", "10.0.0.1", conditions=conditions))
    until(follow(), *([("10.0.0.1", 8000)] if counts else []))


def test_a_pod_of_two_address_families_is_one_endpoint(server: ApiServer, follow: Follow):
    server.put(slice_of("four", "10.0.0.1"))
    server.put(slice_of("six", "fd00::1", family="IPv6"))
    until(follow(), ("10.0.0.1", 8000))


def test_the_port_is_the_one_of_the_name_or_the_first(server: ApiServer, follow: Follow):
    server.put(slice_of("one", "10.0.0.1"))
    until(follow(port=""), ("10.0.0.1", 9))
    until(follow(port="other"))


def test_a_watch_that_ends_goes_on_from_where_it_was(server: ApiServer, follow: Follow):
    server.put(slice_of("one", "10.0.0.1"))
    watch = follow()
    watched(server)
    server.bookmark()
    server.end_watches()
    server.put(slice_of("two", "10.0.0.2"))
    until(watch, ("10.0.0.1", 8000), ("10.0.0.2", 8000))
    assert len([request for request in server.requests if "watch" not in request]) == 1, "nothing was listed again"


@pytest.mark.parametrize("told", ["in the stream", "by status"])
def test_a_version_that_is_gone_is_listed_again(server: ApiServer, follow: Follow, told: str):
    server.put(slice_of("one", "10.0.0.1"))
    watch = follow()
    until(watch, ("10.0.0.1", 8000))
    watched(server)
    if told == "by status":
        server.change_unseen(slice_of("two", "10.0.0.2"))
        server.end_watches()
    else:
        server.slices.pop("one")
        server.change_unseen(slice_of("two", "10.0.0.2"))
        server.expire()
    expected = [("10.0.0.2", 8000)] if told == "in the stream" else [("10.0.0.1", 8000), ("10.0.0.2", 8000)]
    until(watch, *expected)
    assert len([request for request in server.requests if "watch" not in request]) == 2


def test_a_server_that_is_away_leaves_what_it_said(server: ApiServer, follow: Follow):
    server.put(slice_of("one", "10.0.0.1"))
    watch = follow()
    until(watch, ("10.0.0.1", 8000))
    watched(server)
    server.status = 503
    server.end_watches()
    poll(lambda: "503" in watch.fault, "the fault", 10)
    assert watch.endpoints == frozenset({("10.0.0.1", 8000)})
    server.put(slice_of("one", "10.0.0.9"))
    server.status = 200
    until(watch, ("10.0.0.9", 8000))
    assert watch.fault == ""


def test_a_token_is_sent_and_one_that_is_refused_is_told_with_the_remedy(
    server: ApiServer, follow: Follow, tmp_path: Path
):
    server.token = "first"
    server.put(slice_of("one", "10.0.0.1"))
    file = tmp_path / "token"
    file.write_text("another\n")
    watch = follow(token_file=file)
    poll(lambda: "401" in watch.fault, "the refusal", 10)
    assert "endpointslices" in watch.fault and "another" not in watch.fault
    file.write_text("first\n")
    until(watch, ("10.0.0.1", 8000))


@pytest.mark.parametrize("url", ["kubernetes.default", "ftp://a", "https://"])
def test_an_unusable_url_of_the_api_server_is_named(url: str):
    with pytest.raises(ConfigurationError, match="TOLLKEEPER_KUBERNETES_URL"):
        check_api(KubernetesApi(url))


def test_a_watch_whose_server_has_vanished_is_ended_by_the_kernel_within_half_a_minute() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = KubernetesApi(f"http://127.0.0.1:{server.getsockname()[1]}").connect(300.0)
        chosen = {
            name: connection.sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        }
        assert connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        connection.close()
    assert chosen["TCP_KEEPIDLE"] + chosen["TCP_KEEPINTVL"] * chosen["TCP_KEEPCNT"] <= 30
