"""Endpoints of an InferencePool, from an API server that streams, breaks off and forgets."""

from collections.abc import Callable, Iterator

import pytest

from backends.endpoints.inference_pool_reader import InferencePoolReader
from backends.endpoints.kubernetes_watch import KubernetesApi
from backends.endpoints.source import InferencePoolSource, parse_source
from backends.endpoints.watch import EndpointWatch
from contracts.errors import ConfigurationError
from tests.backends.endpoints.api_server import ApiServer, inference_pool_of, pod_of
from tests.backends.endpoints.conftest import until
from tests.conftest import poll

Follow = Callable[..., EndpointWatch]


@pytest.fixture
def follow(server: ApiServer) -> Iterator[Follow]:
    watches: list[EndpointWatch] = []

    def begin() -> EndpointWatch:
        reader = InferencePoolReader(InferencePoolSource("models", "llama"), KubernetesApi(server.url))
        watches.append(EndpointWatch("llama", reader, lambda: None))
        return watches[-1]

    yield begin
    for watch in watches:
        watch.close()
        assert not watch._thread.is_alive(), "nothing is left waiting"


def watched(server: ApiServer) -> None:
    poll(lambda: server.watching == 2, "two watches", 10)


def lists(server: ApiServer) -> list[str]:
    return [request["path"].rpartition("/")[2] for request in server.requests if "watch" not in request]


@pytest.fixture
def llama(server: ApiServer) -> ApiServer:
    server.put(inference_pool_of("llama", 8000, app="llama"))
    server.put(inference_pool_of("other", 9000, app="other"))
    server.put(pod_of("one", "10.0.0.1", app="llama", zone="a"))
    server.put(pod_of("two", "10.0.0.2", app="other"))
    return server


def test_ready_pods_of_the_pool_join_and_leave(llama: ApiServer, follow: Follow):
    watch = follow()
    until(watch, ("10.0.0.1", 8000))
    watched(llama)
    llama.put(pod_of("three", "10.0.0.3", is_ready=False, app="llama"))
    llama.put(pod_of("four", "10.0.0.4", app="llama"))
    until(watch, ("10.0.0.1", 8000), ("10.0.0.4", 8000))
    llama.put(pod_of("three", "10.0.0.3", app="llama"))
    llama.put(pod_of("four", "10.0.0.4", app="llama", deleted="2026-11-29T00:00:00Z"))
    until(watch, ("10.0.0.1", 8000), ("10.0.0.3", 8000))
    llama.delete("one")
    until(watch, ("10.0.0.3", 8000))
    assert lists(llama) == ["inferencepools", "pods"], "each listed once"
    first, pods = (request for request in llama.requests if "watch" not in request)
    assert first["path"] == "/apis/inference.networking.k8s.io/v1/namespaces/models/inferencepools"
    assert first["fieldSelector"] == "metadata.name=llama"
    assert pods["path"] == "/api/v1/namespaces/models/pods" and pods["labelSelector"] == "app=llama"


def test_a_pool_that_changes_its_ports_or_its_selector_is_followed(llama: ApiServer, follow: Follow):
    watch = follow()
    until(watch, ("10.0.0.1", 8000))
    watched(llama)
    llama.put(inference_pool_of("llama", 8000, 8001, app="llama"))
    until(watch, ("10.0.0.1", 8000), ("10.0.0.1", 8001))
    llama.put(inference_pool_of("llama", 8000, app="other"))
    until(watch, ("10.0.0.2", 8000))
    llama.put(inference_pool_of("llama", 8000, app="llama", zone="a"))
    until(watch, ("10.0.0.1", 8000))
    assert [each["labelSelector"] for each in llama.requests if "watch" not in each and "labelSelector" in each] == [
        "app=llama",
        "app=other",
        "app=llama,zone=a",
    ]


def test_a_pool_that_is_not_there_has_no_endpoints_until_it_is(llama: ApiServer, follow: Follow):
    llama.delete("llama")
    watch = follow()
    until(watch)
    llama.put(inference_pool_of("llama", 8000, app="llama"))
    until(watch, ("10.0.0.1", 8000))
    llama.delete("llama")
    until(watch)


def test_watches_that_end_go_on_from_where_they_were(llama: ApiServer, follow: Follow):
    watch = follow()
    until(watch, ("10.0.0.1", 8000))
    watched(llama)
    llama.bookmark()
    llama.end_watches()
    llama.put(pod_of("three", "10.0.0.3", app="llama"))
    until(watch, ("10.0.0.1", 8000), ("10.0.0.3", 8000))
    assert lists(llama) == ["inferencepools", "pods"], "nothing was listed again"


@pytest.mark.parametrize("told", ["in the stream", "by status"])
def test_versions_that_are_gone_are_listed_again(llama: ApiServer, follow: Follow, told: str):
    watch = follow()
    until(watch, ("10.0.0.1", 8000))
    watched(llama)
    llama.change_unseen(pod_of("three", "10.0.0.3", app="llama"))
    if told == "by status":
        llama.end_watches()
    else:
        llama.expire()
    until(watch, ("10.0.0.1", 8000), ("10.0.0.3", 8000))
    poll(lambda: sorted(lists(llama)) == ["inferencepools"] * 2 + ["pods"] * 2, "both lists", 10)
    llama.put(inference_pool_of("llama", 9000, app="llama"))
    until(watch, ("10.0.0.1", 9000), ("10.0.0.3", 9000))


def test_a_server_that_is_away_leaves_what_it_said(llama: ApiServer, follow: Follow):
    watch = follow()
    until(watch, ("10.0.0.1", 8000))
    watched(llama)
    llama.status = 503
    llama.end_watches()
    poll(lambda: "503" in watch.fault, "the fault", 10)
    assert watch.endpoints == frozenset({("10.0.0.1", 8000)})
    llama.put(pod_of("three", "10.0.0.3", app="llama"))
    llama.status = 200
    until(watch, ("10.0.0.1", 8000), ("10.0.0.3", 8000))
    assert watch.fault == ""


@pytest.mark.parametrize(
    ("status", "remedy"), [(403, "get, list and watch inferencepools"), (404, "install what serves inferencepools")]
)
def test_a_refusal_says_what_to_do(llama: ApiServer, follow: Follow, status: int, remedy: str):
    llama.status = status
    watch = follow()
    poll(lambda: remedy in watch.fault, "the remedy", 10)


def test_a_pool_is_named_by_namespace_and_name():
    assert parse_source("inferencepool:models/llama") == InferencePoolSource("models", "llama")
    for text in ("inferencepool:llama", "inferencepool:models/", "inferencepool:models/l:http", "inferencepool:M/l"):
        with pytest.raises(ConfigurationError, match="inferencepool:NAMESPACE/NAME"):
            parse_source(text)
