"""Costs, budgets and alerts as a viewer meets them: the numbers of the reports, and the control plane's own words."""

import json
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from streamlit.testing.v1 import AppTest

from analytics.cost.question import CostQuestion
from analytics.cost.report import cost_report
from backends.control.alert_log import settle_alerts
from backends.control.budget_events import PassedThreshold, record_event
from backends.control.budget_states import GatewayState, publish_states
from backends.control.database import ControlDatabase
from backends.secrets.secret_files import SecretFiles
from backends.store.columns import arrow_batch
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from contracts.recording.moments import unix_ns
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord
from contracts.rules.alerts import Finding, Rule
from contracts.rules.periods import period_bounds
from dashboard import formats
from dashboard.views import slos
from dashboard.views.costs_words import signed_money, signed_percent
from gateway.control.app import create_app
from gateway.control.settings import ControlSettings
from tests.conftest import poll

USD = 10**12
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
MIDDAY = TODAY - timedelta(hours=12)  # of yesterday: whole, whenever the test runs


@pytest.fixture
def plane(tmp_path: Path, migrated_sqlite: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """A control plane in this process, to which the pages' changes go; its owner is the viewer."""
    shutil.copy(migrated_sqlite, tmp_path / "control.db")
    client = TestClient(create_app(ControlSettings(data=tmp_path)))
    token = SecretFiles(tmp_path / "secrets").get("admin_token")
    client.headers["Authorization"] = f"Bearer {token}"
    for tenant in ("acme", "globex"):
        assert client.post("/v1/tenants", json={"id": tenant, "name": tenant}).status_code == 201
    monkeypatch.setattr("dashboard.visit.control_connections", lambda: client)
    monkeypatch.setenv("TOLLKEEPER_DATA", str(tmp_path))
    monkeypatch.setenv("TEST_VIEWER_TOKEN", str(token))
    return client


@pytest.fixture
def record(
    empty_store: Any, plane: TestClient, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Sequence[RequestRecord]], None]:
    """Provide `record(records)`: rows of the store that the pages read, as the collector inserts them."""
    for name, value in empty_store.environment.items():
        if name.startswith("TOLLKEEPER_STORE"):
            monkeypatch.setenv(name, value)
    password = SecretFiles(empty_store.data / "secrets").get("store_reader")
    monkeypatch.setenv("TOLLKEEPER_STORE_PASSWORD", str(password))
    monkeypatch.setenv("TOLLKEEPER_STORE_USER", "reader")

    def insert(records: Sequence[RequestRecord]) -> None:
        client = empty_store.client("writer")
        client.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=uuid4().hex)
        client.close()

    return insert


def used(cost: int | None, at: datetime = MIDDAY, team: str = "red", **fields: object) -> RequestRecord:
    return RequestRecord(
        request_id=uuid4().bytes,
        started_at_ns=int(at.timestamp()) * 10**9,
        duration_ns=10**9,
        who=Identity("acme", team, "search", "key_1", "", {"feature": "chat"}),
        model="llama",
        cost_pico_usd=cost,
        **{"usage": Usage(input_text=900, output_text=100), **fields},  # type: ignore[arg-type]  # the tests name fields by keyword
    )


def costs_page() -> None:
    """What Streamlit runs for the costs page."""
    import os
    from datetime import UTC, datetime

    import streamlit

    from analytics.access_scope import AccessScope
    from contracts.control import Role
    from dashboard.filters import read_filters
    from dashboard.frame import visit_of
    from dashboard.viewer import Viewer
    from dashboard.views.costs import COSTS

    whose = os.environ.get("TEST_REACH")
    viewer = Viewer("tester", Role.TEAM_LEAD, AccessScope(*whose.split("/"))) if whose else Viewer("tester", Role.OWNER)
    COSTS.draw(visit_of(COSTS, viewer, read_filters(streamlit.query_params.to_dict()), datetime.now(UTC)))


def budgets_page() -> None:
    """What Streamlit runs for the page of budgets and alerts."""
    import os
    from datetime import UTC, datetime

    import streamlit

    from analytics.access_scope import EVERYTHING
    from contracts.control import Role
    from dashboard.filters import read_filters
    from dashboard.frame import visit_of
    from dashboard.viewer import Viewer
    from dashboard.views.budgets import BUDGETS

    viewer = Viewer("tester", Role.OWNER, EVERYTHING, os.environ["TEST_VIEWER_TOKEN"])
    BUDGETS.draw(visit_of(BUDGETS, viewer, read_filters(streamlit.query_params.to_dict()), datetime.now(UTC)))


def overview_page() -> None:
    """What Streamlit runs for the overview."""
    from datetime import UTC, datetime

    import streamlit

    from contracts.control import Role
    from dashboard.filters import read_filters
    from dashboard.frame import visit_of
    from dashboard.viewer import Viewer
    from dashboard.views.overview import OVERVIEW

    viewer = Viewer("tester", Role.OWNER)
    OVERVIEW.draw(visit_of(OVERVIEW, viewer, read_filters(streamlit.query_params.to_dict()), datetime.now(UTC)))


def prices_page() -> None:
    """What Streamlit runs for the prices of the admin page, as finance of the installation or as an owner."""
    import os
    from datetime import UTC, datetime

    import streamlit

    from analytics.access_scope import EVERYTHING
    from contracts.control import Role
    from dashboard.filters import read_filters
    from dashboard.frame import visit_of
    from dashboard.viewer import Viewer
    from dashboard.views.admin import ADMIN
    from dashboard.views.admin_prices import draw_prices

    role = Role(os.environ.get("TEST_VIEWER_ROLE", "owner"))
    viewer = Viewer("tester", role, EVERYTHING, os.environ["TEST_VIEWER_TOKEN"])
    draw_prices(visit_of(ADMIN, viewer, read_filters(streamlit.query_params.to_dict()), datetime.now(UTC)))


def page(script: Callable[[], None], **address: str) -> AppTest:
    app = AppTest.from_function(script, default_timeout=30)
    for name, value in address.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception, app.exception
    return app


def figures(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def words(app: AppTest) -> str:
    return "\n".join(str(element.value) for element in [*app.markdown, *app.caption, *app.error])


def yesterday(**address: str) -> dict[str, str]:
    day = TODAY - timedelta(days=1)
    return {"from": f"{day:%Y-%m-%dT%H:%MZ}", "to": f"{TODAY:%Y-%m-%dT%H:%MZ}", **address}


def test_the_costs_page_says_what_the_report_says_and_what_has_no_price_apart(
    record: Callable[[Sequence[RequestRecord]], None], empty_store: Any
) -> None:
    record([used(5 * USD), used(2 * USD, team="blue"), used(None, team="blue")])
    reader = empty_store.client("reader")
    total = cost_report(reader, CostQuestion(TODAY - timedelta(days=1), TODAY, ("team",))).total
    reader.close()
    app = page(costs_page, **yesterday(tenant="acme"))
    poll(lambda: "unknown number" not in words(app.run()), "what unpriced requests used")
    found = figures(app)
    assert found["Cost"] == formats.money(total.cost_usd) == "$7.00"
    assert (found["Per request"], found["Per 1M tokens"]) == ("$3.50", "$3,500.00")
    assert (found["Requests"], found["No price"]) == ("3", "1 request")
    assert "No price: 1,000 tokens of 1 request" in words(app)
    (table,) = app.dataframe
    assert list(zip(table.value["Team"], table.value["Cost"], table.value["No price"], strict=True)) == [
        ("red", 5.0, 0),
        ("blue", 2.0, 1),
    ]


def test_estimates_failures_and_unknown_usage_are_told_apart_on_the_costs_page(
    record: Callable[[Sequence[RequestRecord]], None],
) -> None:
    failed: dict[str, Any] = {"outcome": "error", "cost_basis": "free", "usage": Usage()}
    record(
        [
            used(5 * USD, cost_basis="price_card"),
            used(2 * USD, cost_basis="price_card", count_method="estimate", outcome="cancelled"),
            used(None, cost_basis="unknown_usage", usage=Usage()),
            used(0, **failed),
        ]
    )
    app = page(costs_page, **yesterday(tenant="acme"))
    found = figures(app)
    assert (found["Cost"], found["No price"]) == ("$7.00", "none")
    said = words(app)
    assert "Estimated: $2.00 of 1 request is estimated." in said
    assert "Usage unknown: 1 request. Excluded from all cost totals." in said and "No price:" not in said


@pytest.mark.parametrize("view", ["breakdown", "compare", "units", "standard"])
def test_a_team_s_lead_sees_the_team_s_costs_alone(
    record: Callable[[Sequence[RequestRecord]], None], monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    record([used(5 * USD), used(2 * USD, team="blue")])
    monkeypatch.setenv("TEST_REACH", "acme/red")
    app = page(costs_page, **yesterday(view=view))
    assert figures(app)["Now" if view == "compare" else "Cost"] == "$5.00"
    assert "You don't have access" not in words(app)
    assert "crumb_all" not in [button.key for button in app.button]


def test_the_way_back_leads_to_each_step(record: Callable[[Sequence[RequestRecord]], None]) -> None:
    record([used(USD)])
    app = page(costs_page, **yesterday(tenant="acme", team="red", project="search", model="llama"))
    crumbs = {button.key: button for button in app.button if str(button.key).startswith("crumb_")}
    assert [button.label for button in crumbs.values()] == ["All tenants", "acme", "red", "search", "llama"]
    crumbs["crumb_tenant"].click().run()
    assert "acme" in app.query_params["tenant"]
    assert "team" not in app.query_params and "model" not in app.query_params


def test_two_periods_are_compared_and_the_change_is_taken_apart(
    record: Callable[[Sequence[RequestRecord]], None],
) -> None:
    record([used(6 * USD), used(4 * USD, at=MIDDAY - timedelta(days=1))])
    app = page(costs_page, **yesterday(tenant="acme", view="compare"))
    poll(lambda: len(app.run().get("plotly_chart")) == 1, "what moved it")
    found = figures(app)
    assert (found["Before"], found["Now"], found["Change"]) == ("$4.00", "$6.00", "+$2.00")
    (chart,) = app.get("plotly_chart")
    (waterfall,) = json.loads(chart.proto.spec)["data"]
    assert waterfall["text"] == ["$4.00", "$0.00", "$0.00", "$0.00", "+$2.00", "$6.00"]


@pytest.mark.parametrize("view", ["units", "standard"])
def test_every_view_of_costs_is_drawn(record: Callable[[Sequence[RequestRecord]], None], view: str) -> None:
    record([used(6 * USD, charged_pico_usd=5 * USD)])
    app = page(costs_page, **yesterday(tenant="acme", view=view))
    if view == "standard":
        assert figures(app)["Cost minus charged"] == "+$1.00"
    else:
        assert app.dataframe[0].value["Per 1k tokens"][0] == 6.0


def test_saved_allocations_are_shown_with_their_sum_to_who_sees_all_tenants(
    record: Callable[[Sequence[RequestRecord]], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record([used(6 * USD), used(2 * USD, team="blue"), used(USD, team="")])
    page_asked = yesterday(view="allocations")
    assert "No allocations are saved" in words(page(costs_page, **page_asked))
    file = tmp_path / "allocations.yaml"
    monkeypatch.setenv("TOLLKEEPER_ALLOCATIONS", str(file))
    file.write_text("allocations: [")
    assert "The saved allocations cannot be read" in words(page(costs_page, **page_asked))
    shared = "{name: no team, source: unallocated}, {name: desk, source: fixed, usd: '3', by: even}"
    file.write_text(f"allocations: {{teams: {{by: team, shared: [{shared}]}}}}")
    app = page(costs_page, **page_asked)
    poll(lambda: bool(app.run().dataframe), "the allocation")
    (table,) = app.dataframe
    rows = zip(*(table.value[name] for name in ("team", "Direct", "no team", "desk", "Total")), strict=True)
    assert list(rows) == [("red", 6.0, 0.75, 1.5, 8.25), ("blue", 2.0, 0.25, 1.5, 3.75)]
    found = figures(app)
    assert (found["Direct cost"], found["no team"], found["desk"], found["Total"]) == (
        "$8.00",
        "$1.00",
        "$3.00",
        "$12.00",
    )
    monkeypatch.setenv("TEST_REACH", "acme/red")
    assert "Allocations" not in str(page(costs_page, **yesterday()).get("button_group"))


def test_a_budget_is_made_changed_and_deleted_by_forms(plane: TestClient) -> None:
    app = page(budgets_page, new="budget")
    app.text_input(key="new_budget_amount").input("12.5")
    app.selectbox(key="new_budget_tenant").select("acme")
    press(app, "Create budget")
    (made,) = plane.get("/v1/tenants/acme/budgets").json()["data"]
    assert (Decimal(made["amount_usd"]), made["period"], made["thresholds"]) == (
        Decimal("12.5"),
        "month",
        [50, 80, 100],
    )
    app = page(budgets_page, budget=made["id"])
    assert app.dataframe[0].value["Subject"][0] == "acme"
    assert figures(app)["Remaining"] == "$12.50"
    app.text_input(key=f"change_{made['id']}_amount").input("20")
    press(app, "Save")
    assert Decimal(plane.get("/v1/tenants/acme/budgets").json()["data"][0]["amount_usd"]) == Decimal(20)
    app = page(budgets_page, budget=made["id"])
    press(app, "Delete this budget")
    assert plane.get("/v1/tenants/acme/budgets").json()["data"] == []


def test_the_bar_of_a_budget_that_is_used_up_is_no_good_one(plane: TestClient, tmp_path: Path) -> None:
    """At 138 % it was green in the table and red on the overview."""
    body = {"level": "tenant", "period": "total", "amount_usd": "1", "is_hard": False, "thresholds": [50, 80]}
    budget = plane.post("/v1/tenants/acme/budgets", json=body).json()["id"]
    database, now = ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}"), datetime.now(UTC)
    with database.session() as session:
        start_ns, _ = period_bounds("total", "UTC", unix_ns(now))
        publish_states(session, "one", [GatewayState(budget, "", start_ns, 138 * USD // 100)], now)
        for percent in (50, 80):
            record_event(session, PassedThreshold(budget, "", start_ns, percent, USD, 138 * USD // 100), now)
    database.close()
    (table,) = page(budgets_page).dataframe
    assert (round(table.value["Used"][0], 2), table.value["State"][0]) == (1.38, "used up")
    assert json.loads(table.proto.columns)["Used"]["type_config"]["color"] == "gray"
    passed = page(budgets_page, budget=budget).dataframe[-1].value
    assert list(passed["Threshold"]) == ["80 %", "50 %"], "the latest first"
    assert (passed["Spent"][0], passed["Budget"][0]) == ("$1.38", "$1.00")


@pytest.mark.parametrize(
    ("left", "lowest"), [(0.5, -2), (0.0, -2), (-0.4, -42), (-1.0, -102), (-1.01, -102), (-73.89, -102)]
)
def test_a_chart_of_an_error_budget_ends_where_twice_as_many_were_bad(
    monkeypatch: pytest.MonkeyPatch, left: float, lowest: float
) -> None:
    drawn: list[Any] = []
    points = [SimpleNamespace(at=TODAY, remaining_share=share) for share in (1.0, None, left)]
    visit: Any = SimpleNamespace(
        read_slow=lambda *_, **__: SimpleNamespace(points=points),
        formats=SimpleNamespace(zone=UTC),
        now=TODAY,
    )
    monkeypatch.setattr(slos, "show_chart", lambda _, figure, **more: drawn.append((figure, more["data"]())))
    monkeypatch.setattr(slos, "select", lambda *_, **__: "up")
    found: Any = SimpleNamespace(objective=SimpleNamespace(id="up"), budget=SimpleNamespace(remaining_share=left))
    slos._history(visit, SimpleNamespace(), [found])  # type: ignore[arg-type]
    ((figure, data),) = drawn
    assert list(json.loads(figure.as_json())["layout"]["yaxis"]["range"]) == [pytest.approx(lowest), 104]
    assert data["Budget left"] == [100, None, pytest.approx(left * 100)], "the data has all of it"


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("new_budget_amount", "much", "write a number"),
        ("new_budget_amount", "-5", "must be above 0"),
        ("new_budget_thresholds", "80, 50", "thresholds must rise"),
        ("new_budget_thresholds", "soon", "write a whole number"),
        ("new_budget_webhook", "ftp://x", "a webhook is an http:// or https:// URL"),
    ],
)
def test_a_form_shows_the_control_plane_s_own_message(plane: TestClient, field: str, typed: str, said: str) -> None:
    app = page(budgets_page, new="budget")
    app.selectbox(key="new_budget_tenant").select("acme")
    app.text_input(key="new_budget_amount").input("5")
    app.text_input(key=field).input(typed)
    press(app, "Create budget")
    (error,) = app.error
    assert said in error.value.replace("\\", "").replace("\u2060", "")  # which keeps addresses from becoming links
    assert plane.get("/v1/tenants/acme/budgets").json()["data"] == []


def test_finance_makes_a_card_of_units_for_a_region_by_the_form(
    plane: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = plane.post("/v1/tokens", json={"name": "finance", "role": "finance"}).json()["secret"]
    monkeypatch.setenv("TEST_VIEWER_TOKEN", token)
    monkeypatch.setenv("TEST_VIEWER_ROLE", "finance")
    plane.headers["Authorization"] = f"Bearer {token}"
    written = {"Model": "dall-e", "Version": "dall-e/1", "Region": "eu", "Prices by unit": "image=0.04 image.hd=0.08"}
    app = page(prices_page)
    assert not any(field.disabled for field in app.text_input)
    fill(app, written)
    press(app, "Create card")
    card = plane.get("/v1/prices/dall-e/1").json()
    assert (card["model"], card["region"], card["provider"], card["tenant_id"]) == ("dall-e", "eu", "", "")
    assert card["card"]["usd_per_unit"] == {"image": "0.04", "image.hd": "0.08"} and not card["card"]["usd_per_mtok"]
    rows = page(prices_page).dataframe[0].value.to_dict("records")
    (row,) = (row for row in rows if row["Version"] == "dall-e/1")
    assert (row["Other rules"], row["Applies to"]) == ("image $0.04, image.hd $0.08", "eu")


@pytest.mark.parametrize(
    ("units", "is_standard", "said"),
    [
        ("image", False, "'image' is not a price by unit; write UNIT=USD such as image=0.04"),
        ("image=cheap", False, "'image=cheap' is not a price by unit"),
        ("picture=0.04", False, "picture"),
        ("image=-1", False, "must be at least 0"),
        ("image=0.04", True, "standard cost card is for every provider, region and tenant, and has no image"),
    ],
)
def test_a_price_by_unit_that_is_none_is_refused_and_no_card_is_made(
    plane: TestClient, units: str, is_standard: bool, said: str
) -> None:
    app = page(prices_page)
    fill(app, {"Model": "dall-e", "Version": "dall-e/1", "Prices by unit": units})
    if is_standard:
        (box,) = (box for box in app.checkbox if box.label.startswith("Standard cost card"))
        box.check()
    press(app, "Create card")
    assert said in "".join(error.value.replace("\\", "") for error in app.error)
    assert [plane.get(f"/v1/{kind}/dall-e/1").status_code for kind in ("prices", "standard-costs")] == [404, 404]


def fill(app: AppTest, written: dict[str, str]) -> None:
    for label, text in written.items():
        (field,) = (field for field in app.text_input if field.label == label)
        field.input(text)


def test_an_alert_is_listed_taken_up_and_silenced(plane: TestClient, tmp_path: Path) -> None:
    assert plane.post("/v1/alert-rules", json={"id": "money", "kind": "budget_threshold"}).status_code == 201
    database = ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}")
    finding = Finding("acme|100", "acme has used 100 %", "page", "acme", facts={"spent_usd": "5"})
    with database.session() as session:
        settle_alerts(session, [(Rule.of("money", "budget_threshold", "", (), {}), [finding])], datetime.now(UTC))
    database.close()
    (raised,) = plane.get("/v1/alerts").json()["data"]
    app = page(budgets_page, tab="alerts", alert=raised["id"])
    assert app.dataframe[0].value["What"][0] == "acme has used 100 %"
    app.button(key="alert_acknowledge").click().run()
    assert plane.get("/v1/alerts").json()["data"][0]["acknowledged_by"] == "admin"
    app = page(budgets_page, tab="alerts", alert=raised["id"])
    press(app, "Silence this alert")
    (silence,) = plane.get("/v1/alert-silences").json()["data"]
    assert (silence["rule_id"], silence["subject"]) == ("money", "acme|100")


@pytest.mark.parametrize(
    ("severities", "said"),
    [
        ((), "no alert rule matches"),
        (("ticket",), "0 pages, 1 ticket"),
        (("page", "ticket", "ticket"), "1 page, 2 tickets"),
    ],
)
def test_the_overview_counts_open_alerts_by_their_severity(
    record: Callable[[Sequence[RequestRecord]], None], tmp_path: Path, severities: tuple[Any, ...], said: str
) -> None:
    database = ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}")
    findings = [Finding(f"acme|{place}", "a finding", severity, "acme") for place, severity in enumerate(severities)]
    with database.session() as session:
        settle_alerts(session, [(Rule.of("money", "budget_threshold", "", (), {}), findings)], datetime.now(UTC))
    database.close()
    record([used(USD, datetime.now(UTC) - timedelta(minutes=1))])
    assert f"</span> {said}</div>" in words(page(overview_page))


def test_channels_are_made_and_tested_and_rules_tell_them(plane: TestClient) -> None:
    app = page(budgets_page, tab="channels", new="channel")
    app.text_input(key="new_channel_id").input("ops")
    app.text_input(key="new_channel_address").input("https://hooks.example/T0/hidden")
    press(app, "Create channel")
    app = page(budgets_page, tab="channels", channel="ops")
    app.button(key="channel_test").click().run()
    assert plane.get("/v1/alert-deliveries").json()["data"][0]["event"] == "test"
    app = page(budgets_page, tab="rules", new="rule")
    app.text_input(key="new_rule_id").input("money")
    app.multiselect(key="new_rule_channels").select("ops")
    press(app, "Create rule")
    (rule,) = plane.get("/v1/alert-rules").json()["data"]
    assert (rule["kind"], rule["channels"]) == ("budget_threshold", ["ops"])
    app = page(budgets_page, tab="rules", rule="money")
    app.toggle(key="rule_money_active").set_value(False)
    press(app, "Save")
    assert not plane.get("/v1/alert-rules").json()["data"][0]["is_active"]


def test_changes_are_written_with_their_sign() -> None:
    writer = formats.Formats()
    assert signed_money(writer, Decimal("2.5")) == "+$2.50"
    assert signed_money(writer, Decimal("-0.25")) == "\N{MINUS SIGN}$0.2500"
    assert (signed_money(writer, Decimal(0)), signed_money(writer, None)) == ("$0.00", "—")
    assert (signed_percent(0.5), signed_percent(-0.013), signed_percent(None)) == (
        "+50.0 %",
        "\N{MINUS SIGN}1.3 %",
        "—",
    )


def press(app: AppTest, label: str) -> None:
    (button,) = (button for button in app.button if button.label == label)
    button.click().run()
    assert not app.exception, app.exception
