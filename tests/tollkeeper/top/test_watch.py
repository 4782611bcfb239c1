"""Where the metrics are, and what is said if they cannot be read."""

import httpx
import pytest

from tollkeeper.top.watch import MetricsUnreadable, Watch, metrics_urls


def watch(status: int, token: str = "") -> Watch:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, text=f'n{{token="{request.headers.get("authorization", "")}"}} 1')

    return Watch(["http://127.0.0.1:8080/metrics"], token, clock=lambda: 5.0, transport=httpx.MockTransport(answer))


def test_metrics_are_at_the_gateways_port_unless_they_have_their_own() -> None:
    assert metrics_urls("http://127.0.0.1:8080", {}) == ["http://127.0.0.1:8080/metrics"]
    assert metrics_urls("https://gw.example:8443", {"TOLLKEEPER_METRICS_PORT": "9100"}) == [
        "https://gw.example:9100/metrics"
    ]


def test_every_worker_has_its_own_port() -> None:
    environment = {"TOLLKEEPER_METRICS_PORT": "9100", "TOLLKEEPER_WORKERS": "2"}
    assert metrics_urls("http://127.0.0.1:8080", environment) == [
        "http://127.0.0.1:9100/metrics",
        "http://127.0.0.1:9101/metrics",
    ]


def test_a_port_that_is_no_number_is_named() -> None:
    with pytest.raises(MetricsUnreadable, match="TOLLKEEPER_METRICS_PORT"):
        metrics_urls("http://127.0.0.1:8080", {"TOLLKEEPER_METRICS_PORT": "many"})


def test_the_token_travels_where_there_is_one() -> None:
    with watch(200, token="t0ken") as one:
        page = one.read()
    assert page.at_seconds == 5.0
    assert page.by("n", "token") == {("Bearer t0ken",): 1.0}


@pytest.mark.parametrize(
    ("status", "says"), [(401, "TOLLKEEPER_METRICS_TOKEN"), (404, "TOLLKEEPER_METRICS=true"), (503, "status 503")]
)
def test_a_page_that_is_not_there_is_said_with_its_remedy(status: int, says: str) -> None:
    with watch(status, token="t0ken") as one, pytest.raises(MetricsUnreadable, match=says) as caught:
        one.read()
    assert "t0ken" not in caught.value.message


def test_a_gateway_that_does_not_answer_is_said_with_its_remedy() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with Watch(["http://127.0.0.1:1/metrics"], "", transport=httpx.MockTransport(refuse)) as one:
        with pytest.raises(MetricsUnreadable, match="tollkeeper up"):
            one.read()
