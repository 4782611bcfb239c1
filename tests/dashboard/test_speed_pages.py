"""GPU, Latency & SLO and Requests as a viewer meets them: with an engine, without, for a team, at a wrong address."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec import structs
from streamlit.testing.v1 import AppTest

from analytics.access_scope import AccessScope
from analytics.explorer.single_request import single_request
from analytics.gpu.ledger import gpu_ledger
from analytics.scope import Period
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.slos import NewSlo, put_slo
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.errors import PermissionDenied
from contracts.metering.gaps import pack_gaps
from contracts.metering.usage import Usage
from contracts.recording.ids import uuid7
from contracts.recording.names import ENGINE_STEPS, REQUESTS
from contracts.recording.records import GpuShare, RequestRecord, StepRecord
from dashboard.own_requests import slowest_of_own

MS = 10**6
NOW = datetime.now(UTC)
START = NOW.replace(second=0, microsecond=0) - timedelta(minutes=20)
Fill = Callable[..., None]


@pytest.fixture
def fill(empty_store: Any, tmp_path: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch) -> Fill:
    """Provide `fill(requests, steps)`: rows of the store that the pages read."""
    shutil.copy(migrated_sqlite, tmp_path / "control.db")
    for name, value in empty_store.environment.items():
        if name.startswith("TOLLKEEPER_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOLLKEEPER_DATABASE_URL", f"sqlite:///{tmp_path / 'control.db'}")

    def insert(requests: list[RequestRecord], steps: list[StepRecord] | None = None) -> None:
        writer = empty_store.client("writer")
        writer.insert_arrow("requests", arrow_batch(REQUESTS, requests), deduplication_token=uuid4().hex)
        if steps:
            writer.insert_arrow("engine_steps", arrow_batch(ENGINE_STEPS, steps), deduplication_token=uuid4().hex)
        writer.close()

    return insert


def draw_page(path: str, tenant: str | None = None, team: str | None = None) -> None:
    """What Streamlit runs for one page, for an owner or a team's lead."""
    from datetime import UTC, datetime

    import streamlit

    from analytics.access_scope import AccessScope
    from contracts.control import Role
    from contracts.errors import TollkeeperError
    from dashboard import states
    from dashboard.filters import read_filters
    from dashboard.frame import visit_of
    from dashboard.pages import PAGES
    from dashboard.viewer import Viewer

    page = next(each for each in PAGES if each.path == path)
    viewer = Viewer("tester", Role.OWNER if tenant is None else Role.TEAM_LEAD, AccessScope(tenant, team))
    try:
        page.draw(visit_of(page, viewer, read_filters(streamlit.query_params.to_dict()), datetime.now(UTC)))
    except TollkeeperError as error:
        states.show_failure(error)


def opened(path: str, address: dict[str, str] | None = None, access: tuple[str, str] | None = None) -> AppTest:
    tenant, team = access or (None, None)
    app = AppTest.from_function(draw_page, default_timeout=60, args=(path, tenant, team))
    for name, value in (address or {}).items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def words(app: AppTest) -> str:
    return "\n".join(str(each.value) for each in [*app.markdown, *app.caption]).replace("\\", "")


def metrics(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def request(minute: float, team: str = "red", **fields: object) -> RequestRecord:
    moment = START + timedelta(minutes=minute)
    at_ns = int(moment.timestamp() * 1e9)
    values: dict[str, object] = {
        "request_id": uuid7(at_ns).bytes,
        "started_at_ns": at_ns,
        "duration_ns": 100 * MS,
        "who": Identity("acme", team),
        "model": "llama",
        "replica": "r1",
        "ttft_ns": 40 * MS,
        "admission_ns": 10 * MS,
        "gaps": pack_gaps([1_000, 3_000]),
        "gap_clock": "engine",
        "usage": Usage(input_text=1_000, output_text=3),
        "cost_pico_usd": 270_000_000,
        "price_version": "card-1",
        "gpu": GpuShare(prefill_ns=20 * MS, decode_ns=10 * MS, method="m"),
        **fields,
    }
    return RequestRecord(**values)  # type: ignore[arg-type]  # the tests name fields by keyword


def engine_steps(of: RequestRecord) -> list[StepRecord]:
    """An engine that idles for a moment, then computes the request, and waits for its host in between."""
    begin = of.started_at_ns - 100 * MS
    common: dict[str, Any] = {"engine": "engine-1", "model": "llama", "replica": "r1", "devices": ["cpu"]}
    step: dict[str, Any] = {
        "method": "m",
        "request_ids": [of.request_id],
        "tenants": ["acme"],
        "scheduled": [4],
        "cached": [4],
        "kv_blocks_used": 5,
        "kv_blocks_total": 10,
    }
    at = of.started_at_ns
    return [
        StepRecord(**common, sequence=1, started_at_ns=begin, busy_ns=at + 10 * MS - begin, kind="idle"),
        StepRecord(
            **common, **step, sequence=2, started_at_ns=at + 12 * MS, gap_ns=2 * MS, gap_cause="host", busy_ns=28 * MS,
            phases=[0], gpu_ns=[28 * MS],
        ),
        StepRecord(
            **common, **{**step, "cached": [0]}, sequence=3, started_at_ns=at + 40 * MS, busy_ns=10 * MS, phases=[1],
            gpu_ns=[10 * MS],
        ),
    ]  # fmt: skip


def test_the_ledger_on_the_page_is_the_one_that_is_printed(fill: Fill, empty_store: Any) -> None:
    one = request(1)
    fill([one], engine_steps(one))
    begin, end = START - timedelta(minutes=1), START + timedelta(minutes=5)
    app = opened("gpu", {"from": f"{begin:%Y-%m-%dT%H:%MZ}", "to": f"{end:%Y-%m-%dT%H:%MZ}"})
    reader = empty_store.client("reader")
    total = gpu_ledger(reader, Period(begin, end)).total
    reader.close()
    found = metrics(app)
    assert found["Useful"] == f"{100 * total.attributed_ns / total.wall_ns:.1f} %" != "0 %"
    assert found["Idle"] == f"{100 * total.idle_ns / total.wall_ns:.1f} %"
    assert (found["Unexplained"], found["Prefix hits"], found["Batch size"]) == ("0 %", "50.0 %", "1")
    table = next(each.value for each in app.dataframe if "Unexplained" in each.value)
    assert table["Device"].tolist() == ["engine-1"] and table["Unexplained"].tolist() == [0.0]
    assert "No GPU readings in this range" in words(app) and "which is not zero" in words(app)


def test_without_an_engine_the_page_says_how_to_have_one(fill: Fill) -> None:
    fill([request(1, gpu=None)])
    app = opened("gpu")
    assert "No engine reported a step" in words(app)
    assert "No GPU time was charged in this range" in words(app)


def test_a_team_sees_its_own_gpu_time_and_no_ledger(fill: Fill) -> None:
    one = request(1)
    fill([one, request(1, "blue")], engine_steps(one))
    app = opened("gpu", access=("acme", "red"))
    assert "Only viewers of the whole installation can see them" in words(app) and not app.metric
    assert not any("Unexplained" in each.value for each in app.dataframe)


def test_times_are_those_of_the_requests_and_promises_are_judged(fill: Fill, tmp_path: Path) -> None:
    database = ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}")
    with database.session() as session:
        promised = NewSlo("chat", "ttft", Decimal(90), {"ttft": Decimal(100)})
        put_slo(session, Author("test", NOW), promised, replaces=False)
    database.close()
    fill([*(request(1) for _ in range(29)), request(2, ttft_ns=130 * MS, duration_ns=9 * 10**9)])
    app = opened("latency")
    found = metrics(app)
    assert found["TTFT p95"] == "40 ms" and found["Requests timed"] == "30"
    prompts = next(each.value for each in app.dataframe if "Prompt tokens" in each.value)
    assert prompts["Requests"].tolist() == [30] and prompts["Prompt tokens"].tolist() == ["below 1,024"]
    assert "Objectives are being evaluated" in words(app) or any("Budget left" in each.value for each in app.dataframe)


def test_promises_stand_beside_a_range_whose_times_are_no_longer_kept(fill: Fill) -> None:
    fill([request(1)])
    long_ago = NOW - timedelta(days=200)
    said = words(opened("latency", {"from": f"{long_ago:%Y-%m-%dT%H:%MZ}", "to": f"{NOW:%Y-%m-%dT%H:%MZ}"}))
    assert "times are kept for" in said.lower() and "### SLOs" in said


def test_a_range_without_times_says_so(fill: Fill) -> None:
    fill([request(1, outcome="rejected", status=429, ttft_ns=None, gaps=b"", usage=Usage())])
    assert "No latency data" in words(opened("latency"))


def test_requests_are_searched_and_counted(fill: Fill) -> None:
    fill([request(1), request(2, outcome="error", status=502, error_code="backend_error"), request(3, model="qwen")])
    for address, models in (
        ({"q": "error:backend_error", "outcome": "error"}, ["llama"]),
        ({"q": "qwe"}, ["qwen"]),
        ({"q": "ttft>39ms", "sort": "duration"}, ["qwen", "llama", "llama"]),
    ):
        app = opened("requests", address)
        assert app.dataframe[0].value["Model"].tolist() == models, address
        assert f"{len(models)} request" in words(app)
    assert "No request matches" in words(opened("requests", {"q": "user:nobody"}))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ({"q": "colour:red"}, "Nothing is searched by 'colour'"),
        ({"p": "201"}, "pages are 1 to 200"),
        ({"request": "nope"}, "'nope' is not a request id"),
        ({"request": "0192f3a4-5b6c-7def-8123-456789abcdef"}, "was not found"),
    ],
)
def test_a_senseless_address_is_a_sentence(fill: Fill, address: dict[str, str], said: str) -> None:
    fill([request(1)])
    assert said in words(opened("requests", address))


def test_one_request_shows_its_time_its_money_and_its_slowest_token(fill: Fill) -> None:
    one = request(1)
    fill([one], engine_steps(one))
    app = opened("requests", {"request": str(UUID(bytes=one.request_id))})
    found = metrics(app)
    assert (found["Duration"], found["First token"], found["Cost"]) == ("100 ms", "40 ms", "$0.00027")
    said = words(app)
    assert "Token 1 was the slowest, 40 ms: 70.0 % of it own compute" in said
    assert "Its alternatives were not recorded" in said
    facts = next(each.value for each in app.dataframe if "Field" in each.value)
    assert "llama" in facts["Value"].tolist()


def test_a_lead_learns_why_their_request_was_slow_and_of_nobody_else(fill: Fill) -> None:
    one, other = request(1), request(1, who=Identity("globex", "secret-team"))
    beside = {"request_ids": [one.request_id, other.request_id], "tenants": ["acme", "globex"], "scheduled": [4, 4]}
    idle, first, second = engine_steps(one)
    shared = structs.replace(
        first,
        **beside,
        cached=[4, 4],
        phases=[0, 0],
        gpu_ns=[8 * MS, 20 * MS],  # the other's prompt takes longer
    )
    fill([one, other], [idle, shared, second])
    app = opened("requests", {"request": str(UUID(bytes=one.request_id))}, ("acme", "red"))
    said = words(app)
    assert "Token 1 was the slowest, 40 ms: 50.0 % of it co-tenant prefill" in said
    assert "It shared steps with up to 1 other request, up to 1 of them their prompts." in said
    assert words(opened("requests", {"request": str(UUID(bytes=one.request_id))})) == said  # as the platform's owner
    everything = said + "".join(str(each.value) for each in [*app.dataframe, *app.metric])
    for foreign in ("globex", "secret-team", str(UUID(bytes=other.request_id))):
        assert foreign not in everything
    theirs = opened("requests", {"request": str(UUID(bytes=other.request_id))}, ("acme", "red"))
    assert "was not found" in words(theirs) and "shared steps" not in words(theirs)


def test_a_slow_request_is_compared_with_what_is_usual_at_its_target(fill: Fill) -> None:
    usual = [request(minute, ttft_ns=(minute + 1) * MS) for minute in range(10)]
    others = [request(5, replica="r2", ttft_ns=900 * MS), request(5, who=Identity("globex", "red"), ttft_ns=900 * MS)]
    slow, quick = request(11, ttft_ns=400 * MS), request(11, ttft_ns=3 * MS)
    fill([*usual, *others, slow, quick])
    said = words(opened("requests", {"request": str(UUID(bytes=slow.request_id))}))
    assert "Time to first token 400 ms is slower than usual for llama at r1: p50 5.5 ms" in said
    assert "of 10 requests of acme in the day before" in said
    assert "Within five minutes of it: 5 other requests, p50 8 ms." in said
    assert "is within the usual range" in words(opened("requests", {"request": str(UUID(bytes=quick.request_id))}))
    first = words(opened("requests", {"request": str(UUID(bytes=usual[0].request_id))}))
    assert "0 requests to llama at r1 in the day before: too few" in first


def test_nothing_is_asked_about_a_request_outside_of_reach(fill: Fill, empty_store: Any) -> None:
    one = request(1)
    fill([one], engine_steps(one))
    store = empty_store.client("reader")
    found = single_request(store, UUID(bytes=one.request_id))
    store.close()
    for tenant, team in (("globex", None), ("acme", "blue")):
        with pytest.raises(PermissionDenied, match="not yours"):
            slowest_of_own(AccessScope(tenant, team), found)


def test_another_team_s_request_is_not_shown(fill: Fill) -> None:
    one = request(1, "blue")
    fill([one, request(1)])
    app = opened("requests", {"request": str(UUID(bytes=one.request_id))}, ("acme", "red"))
    assert "was not found" in words(app) and not app.metric
    assert opened("requests", access=("acme", "red")).dataframe[0].value["Team"].tolist() == ["red"]
