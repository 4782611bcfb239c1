"""The overview page as a viewer meets it: with numbers, without, with a wrong address, with the store gone."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import streamlit
from streamlit.testing.v1 import AppTest

import dashboard
from backends.control.bootstrap import DEMO_MODEL
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord

APP = str(Path(dashboard.__file__).with_name("app.py"))


def page(**address: str) -> AppTest:
    """Open the dashboard at an address."""
    app = AppTest.from_file(APP, default_timeout=30)
    for name, value in address.items():
        app.query_params[name] = value
    return app.run()


def words(app: AppTest) -> str:
    """Everything the page says, but for its metrics."""
    return "\n".join(str(element.value) for element in [*app.markdown, *app.caption, *app.code])


@pytest.fixture
def no_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Point the dashboard at a port where nothing listens."""
    monkeypatch.setenv("TOLLKEEPER_DATA", str(tmp_path))
    monkeypatch.setenv("TOLLKEEPER_STORE_URL", "http://127.0.0.1:1")


@pytest.fixture
def page_store(empty_store: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Point the dashboard at a running store without rows."""
    for name, value in empty_store.environment.items():
        if name.startswith("TOLLKEEPER_"):
            monkeypatch.setenv(name, value)
    return empty_store


@pytest.fixture
def record(page_store: Any) -> Callable[[Sequence[RequestRecord]], None]:
    """Provide `record(records)`: rows of the page's store, as the collector inserts them."""

    def insert(records: Sequence[RequestRecord]) -> None:
        client = page_store.client("writer")
        client.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=uuid4().hex)
        client.close()

    return insert


def request(seconds_ago: float = 5, tenant: str = "acme", model: str = "llama", **fields: object) -> RequestRecord:
    moment = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    values: dict[str, object] = {
        "request_id": uuid4().bytes,
        "started_at_ns": int(moment.timestamp() * 1e9),
        "duration_ns": 10**9,
        "who": Identity(tenant),
        "model": model,
        "ttft_ns": 250_000_000,
        "gaps": pack_gaps([1_000, 2_000]),
        "usage": Usage(input_text=1_000, output_text=3),
        "cost_pico_usd": 270_000_000,
        **fields,
    }
    return RequestRecord(**values)  # type: ignore[arg-type]  # the tests name fields by keyword


def metrics(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def test_the_key_figures_are_those_of_the_records(record: Callable[[Sequence[RequestRecord]], None]) -> None:
    refused = request(outcome="rejected", ttft_ns=None, gaps=b"", usage=Usage(), cost_pico_usd=None)
    record([request(), request(tenant="globex"), refused])
    app = page()
    assert not app.exception
    assert metrics(app) == {
        "Requests": "3",
        "Error rate": "0 %",
        "Input tokens": "2,000",
        "Output tokens": "6",
        "Cost": "$0.00054",
        "TTFT p50": "250 ms",
        "Inter-token p50": "20 ms",
    }
    assert "Percentiles are exact" in words(app)
    (table,) = app.dataframe
    assert sorted(zip(table.value["Tenant"], table.value["Model"], table.value["Requests"], strict=True)) == [
        ("acme", "llama", 2),
        ("globex", "llama", 1),
    ]


def test_times_below_a_millisecond_are_not_shown_as_zero(
    record: Callable[[Sequence[RequestRecord]], None],
) -> None:
    record([request(ttft_ns=10_000)])
    app = page()
    assert metrics(app)["TTFT p50"].endswith("µs")
    (table,) = app.dataframe
    columns = json.loads(table.proto.columns)
    for name in ("TTFT p50", "Inter-token p99"):
        written = columns[name]["type_config"]["format"] % table.value["TTFT p50"][0]
        assert float(written) == pytest.approx(0.01, rel=0.02)


def test_what_is_unknown_is_a_dash_and_not_zero(record: Callable[[Sequence[RequestRecord]], None]) -> None:
    record([request(ttft_ns=None, gaps=b"", usage=Usage(), cost_pico_usd=None)])
    app = page()
    found = metrics(app)
    for name in ("Input tokens", "Output tokens", "Cost", "TTFT p50", "Inter-token p50"):
        assert found[name] == "—"
    assert "The cost of 1 request is unknown" in words(app)


def test_the_address_filters_the_numbers(record: Callable[[Sequence[RequestRecord]], None]) -> None:
    record([request(), request(model="qwen"), request(tenant="globex"), request(seconds_ago=1_800)])
    assert metrics(page(tenant="acme"))["Requests"] == "3"
    assert metrics(page(tenant="acme", model="llama"))["Requests"] == "2"
    assert metrics(page(tenant="acme", model="llama", range="15m"))["Requests"] == "1"


def test_grouping_by_model_goes_into_the_address_and_the_charts(
    record: Callable[[Sequence[RequestRecord]], None],
) -> None:
    record([request(), request(model="qwen")])
    app = page()
    assert "acme" in app.get("html")[1].proto.body and "qwen" not in app.get("html")[1].proto.body
    groups: Sequence[Any] = app.get("button_group")
    (toggle,) = (group for group in groups if group.label == "Group by")
    toggle.set_value("model").run()
    assert "by" in app.query_params
    assert "qwen" in app.get("html")[1].proto.body


def test_a_new_request_appears_and_its_tenant_can_be_chosen(record: Callable[[Sequence[RequestRecord]], None]) -> None:
    record([request()])
    app = page()
    assert metrics(app)["Requests"] == "1"
    record([request(tenant="newcomer")])
    streamlit.cache_resource.clear()  # what some seconds' wait would do
    app.run()
    assert metrics(app)["Requests"] == "2"
    assert "newcomer" in app.selectbox[0].options


@pytest.mark.usefixtures("page_store")
def test_a_store_without_a_single_request_shows_the_first_steps() -> None:
    app = page()
    assert not app.exception
    assert "No requests yet" in words(app)
    assert "curl http://127.0.0.1:8080/v1/chat/completions" in words(app)
    # As pasted after the two lines that `tollkeeper up` prints, on an installation that was just made.
    assert "Bearer $OPENAI_API_KEY" in words(app)
    assert f'"model": "{DEMO_MODEL}"' in words(app)


def test_an_empty_range_says_so_and_offers_a_wider_one(record: Callable[[Sequence[RequestRecord]], None]) -> None:
    record([request(seconds_ago=86_400 * 3)])
    app = page(range="1h", tenant="acme")
    assert "No request of tenant ‘acme’ was recorded" in words(app)
    assert "The last earlier request was on" in words(app)
    (wider,) = (button for button in app.button if button.label == "Show the last 30 days")
    wider.click().run()
    assert metrics(app)["Requests"] == "1"


def test_a_tenant_nobody_knows_is_a_sentence_with_a_way_on(record: Callable[[Sequence[RequestRecord]], None]) -> None:
    record([request()])
    app = page(tenant="*acme*")
    assert not app.exception and not app.metric
    assert r"No requests of tenant ‘\*acme\*’" in words(app)
    app.button[0].click().run()
    assert metrics(app)["Requests"] == "1"


def test_a_tenant_that_came_a_moment_ago_is_not_called_unknown(
    record: Callable[[Sequence[RequestRecord]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.frame.MISS_SECONDS", 0)
    record([request()])
    assert metrics(page())["Requests"] == "1"
    record([request(tenant="newcomer")])
    app = page(tenant="newcomer")
    assert metrics(app)["Requests"] == "1"
    assert "newcomer" in app.selectbox[0].options


def test_a_store_that_is_back_is_shown_with_its_tenants(
    record: Callable[[Sequence[RequestRecord]], None], page_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record([request()])
    monkeypatch.setenv("TOLLKEEPER_STORE_URL", "http://127.0.0.1:1")
    app = page(tenant="acme")
    assert "The telemetry store does not answer" in words(app)
    monkeypatch.setenv("TOLLKEEPER_STORE_URL", page_store.url)
    streamlit.cache_resource.clear()  # stands for the store's return at the address the page knows
    app.button[0].click().run()
    assert metrics(app)["Requests"] == "1"
    assert app.selectbox[0].options == ["All tenants", "acme"]


@pytest.mark.usefixtures("page_store")
def test_a_store_without_its_schema_says_to_migrate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLKEEPER_STORE_DATABASE", "default")
    app = page()
    assert not app.exception
    assert "python -m migrations" in words(app).replace("\\", "")


def test_a_wrong_password_is_a_sentence(page_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLLKEEPER_STORE_PASSWORD", "wrong")
    app = page()
    assert not app.exception
    assert "refuses user 'reader'" in words(app).replace("\\", "")


@pytest.mark.usefixtures("no_store")
def test_a_store_that_is_down_is_a_sentence_with_a_way_on() -> None:
    app = page()
    assert not app.exception
    assert "The telemetry store does not answer" in words(app)
    assert "Requests are not affected" in words(app)
    assert [button.label for button in app.button] == ["Try again"]


@pytest.mark.usefixtures("no_store")
@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ({"from": "2026-11-02", "to": "2026-11-01"}, "before it begins"),
        ({"range": "9y"}, "No range is called '9y'"),
        ({"by": "colour"}, "Cannot group by 'colour'"),
        ({"from": "soon", "to": "later"}, "'soon' is not a valid date and time"),
    ],
)
def test_a_senseless_address_is_a_sentence_with_a_way_on(address: dict[str, str], sentence: str) -> None:
    app = page(**address)
    assert not app.exception
    assert sentence in words(app).replace("\\", "")
    app.button[0].click().run()
    assert dict(app.query_params) == {}


@pytest.mark.usefixtures("no_store")
def test_the_bar_shows_what_the_address_asks_for() -> None:
    app = page(range="7d", tenant="acme", model="llama")
    assert app.session_state["filter_range"] == "7d"
    assert [box.value for box in app.selectbox] == ["acme", "llama"]


@pytest.mark.usefixtures("no_store")
def test_a_choice_goes_into_the_address() -> None:
    app = page(tenant="acme", model="llama")
    app.selectbox[0].select("").run()
    assert "tenant" not in app.query_params and "model" in app.query_params
