"""A walk over every page in the system's Chromium: the command line's numbers, a budget and its alert, a lead's walls.

One browser and one installation for all of it; the rows are the showcase's, so that nothing waits for traffic.
"""

import json
import re
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest

from contracts.errors import ConfigurationError
from dashboard import formats
from dashboard.pages import PAGES
from tests.e2e.installation import UNKNOWN_KEY, Installation, wait_until
from tests.e2e.walk import (
    CHROMIUM,
    FLAGS,
    PATIENCE_MS,
    Browsing,
    assert_accessible,
    choose,
    exported,
    figure,
    fill,
    require_chromium,
)
from tests.steady_time import poll_within
from tollkeeper.installation import Installation as Running
from tollkeeper.showcase.fill import fill_showcase
from tollkeeper.showcase.rows import OWN, ShowcaseRows

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = [pytest.mark.e2e, pytest.mark.service, pytest.mark.drill]


@dataclass
class Walk(Browsing):
    """The browser, the installation, and its rows; `acme` is a tenant with two teams, `globex` another."""

    rows: ShowcaseRows
    acme: str
    globex: str


@pytest.fixture(scope="module")
def walk(installation: Installation) -> Iterator[Walk]:
    require_chromium()
    prefix = f"walk{time.time_ns() % 10**6}-"
    rows = fill_showcase(Running(installation.data), prefix=prefix, has_gpus=False)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield Walk(browser, installation, rows, f"{prefix}acme", f"{prefix}globex")
        browser.close()


def test_an_installation_is_filled_once(walk: Walk) -> None:
    with pytest.raises(ConfigurationError, match="has the showcase already"):
        fill_showcase(Running(walk.installation.data), prefix="again-", has_gpus=False)


def test_the_showcases_budgets_are_spent_as_its_rows_cost(walk: Walk) -> None:
    path = f"/v1/tenants/{walk.acme}/budgets"
    budgets: Any = walk.installation.request("GET", path)
    (budget,) = budgets["data"]
    shown: Any = walk.installation.request("GET", f"{path}/{budget['id']}")
    begin = datetime.fromisoformat(shown["state"]["period_start"]).timestamp() * 1e9
    rows = [row for row in walk.rows.requests if row.who.tenant == walk.acme and row.started_at_ns >= begin]
    spent = Decimal(sum(row.cost_pico_usd or 0 for row in rows)).scaleb(-12)
    (told,) = shown["state"]["subjects"]
    assert Decimal(told["spent"]) == spent
    assert Decimal(budget["amount_usd"]) == max(round(spent / Decimal("0.93"), 2), 1)


@pytest.fixture(scope="module")
def tab(walk: Walk) -> Any:
    return walk.browser.new_page(viewport={"width": 1440, "height": 900}, locale="en-US", timezone_id="UTC")


@pytest.fixture
def page(tab: Any) -> Iterator[Any]:
    size = tab.viewport_size
    yield tab
    tab.goto("about:blank")  # a page that refreshes takes time from the next
    tab.set_viewport_size(size)


def shows(page: Any, **figures: str) -> None:
    """Hold key figures to what they are to say; underscores stand for blanks."""
    for label, value in figures.items():
        playwright.expect(figure(page, label.replace("_", " "))).to_have_text(value, timeout=PATIENCE_MS)


def whole_days() -> tuple[datetime, datetime]:
    """Four whole days that are over, as costs and charts both cover them."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=5), today - timedelta(days=1)


def during(begin: datetime, end: datetime) -> str:
    return f"from={begin:%Y-%m-%dT%H:%MZ}&to={end:%Y-%m-%dT%H:%MZ}"


def test_costs_and_routing_are_those_of_the_command_line(walk: Walk, page: Any) -> None:
    begin, end = whole_days()
    said = walk.told(
        "cost", "report", "--from", f"{begin:%Y-%m-%d}", "--to", f"{end:%Y-%m-%d}", "--tenant", walk.acme, "--by", ""
    )["total"]
    assert said["requests"] > 50
    walk.visit(page, f"costs?{during(begin, end)}&tenant={walk.acme}")
    shows(
        page,
        Cost=formats.money(Decimal(said["cost_usd"])),
        Requests=formats.count(said["requests"]),
        Tokens=formats.count(said["input_tokens"] + said["output_tokens"]),
    )
    walk.visit(page, f"routing?{during(begin, end)}&tenant={walk.acme}")
    ours = [row for row in walk.rows.requests if row.who.tenant == walk.acme]
    then = [row for row in ours if begin.timestamp() <= row.started_at_ns / 1e9 < end.timestamp()]
    tried = sum(row.attempts > 1 for row in then)
    shows(page, Reached_a_target=formats.count(said["requests"] - said["rejected_requests"]))
    beside = page.get_by_test_id("stMetric").filter(has_text=re.compile("^Requests with more than one attempt"))
    playwright.expect(beside).to_contain_text(formats.counted(tried, "request"))


def test_one_request_says_what_the_command_line_says(walk: Walk, page: Any) -> None:
    row = next(row for row in reversed(walk.rows.requests) if row.outcome == "ok" and row.model == OWN)
    said = walk.told("request", "show", row.request_id.hex())
    walk.visit(page, f"requests?request={row.request_id.hex()}")
    used = said["usage"]
    shows(
        page,
        Cost=formats.money(Decimal(said["cost"]["total_usd"])),
        First_token=formats.duration(said["ttft_ns"]),
        Duration=formats.duration(said["duration_ns"]),
        Input=formats.count(used["input_text"] + used["cache_read_text"]),
        Output=formats.count(used["output_text"]),
    )


def test_requests_are_as_many_as_the_command_line_finds(walk: Walk, page: Any) -> None:
    def found() -> int:
        return int(walk.told("request", "find", "--hours", "168", "--tenant", walk.acme)["total"])

    walk.visit(page, f"requests?range=7d&tenant={walk.acme}")
    # A row of a week ago may leave the range between the two looks: then the next one agrees.
    wait_until(
        lambda: bool(page.get_by_text(formats.counted(found(), "request"), exact=True).count()), 70, "the same count"
    )


def test_a_plan_comes_to_what_the_command_line_says(walk: Walk, page: Any, tmp_path: Path) -> None:
    steps = {
        "token_ns": 27000, "ridge_tokens": 170, "pair_ns": 0.26, "read_ns": 40, "logit_ns": 2000, "fixed_ns": 300000,
    }  # fmt: skip
    setup = tmp_path / "replica.json"
    setup.write_text(json.dumps({"steps": steps, "kv_blocks": 3000}))
    said = walk.told(
        "plan", "--generate", "300", "--rate", "20", "--input-tokens", "512", "--output-tokens", "128",
        "--setup", str(setup), "--usd-per-gpu-hour", "2.50",
    )["now"]  # fmt: skip
    walk.visit(page, "planner")
    page.get_by_text("Generated requests").click()
    fill(page, "Requests", "300")
    fill(page, "Requests per second", "20")
    fill(page, "USD per GPU-hour", "2.50")
    fill(page, "A replica as JSON", setup.read_text())
    page.get_by_role("button", name="Run simulation").click()
    shows(
        page,
        TTFT_p95=formats.duration(said["ttft_ms"]["p95"] * 1e6),
        Replicas_busy=formats.percent(said["busy_share"]),
        Cost=formats.money(Decimal(said["cost_usd"])),
        **{"Inter-token_p95": formats.duration(said["gap_ms"]["p95"] * 1e6)},
    )


def test_the_playground_answers_and_leads_to_the_request(walk: Walk, page: Any) -> None:
    walk.visit(page, "playground")
    page.locator("input[type=password]").fill(walk.installation.key)
    page.keyboard.press("Enter")
    page.get_by_label("Message", exact=True).fill("Good morning")
    page.get_by_role("button", name="Send").click()
    link = page.get_by_text("Open this request")
    playwright.expect(link).to_be_visible(timeout=PATIENCE_MS)
    playwright.expect(figure(page, "Cost")).to_contain_text("$", timeout=PATIENCE_MS)
    link.click()
    page.wait_for_url("**/requests?request=*", timeout=PATIENCE_MS)
    playwright.expect(page).to_have_title("Requests · Tollkeeper", timeout=PATIENCE_MS)


def test_a_budget_is_made_and_its_alert_is_seen(walk: Walk, page: Any) -> None:
    made: Any = walk.installation.request("POST", f"/v1/tenants/{walk.globex}/keys", {"name": "walk"})
    walk.visit(page, f"budgets?tenant={walk.globex}&new=budget")
    page.get_by_label("Amount", exact=True).fill("0.00001")
    choose(page, "Kind", "soft")
    page.get_by_role("button", name="Create budget").click()

    budgets = f"/v1/tenants/{walk.globex}/budgets"

    def found() -> Any:
        listed: Any = walk.installation.request("GET", budgets)
        return next((one for one in listed["data"] if one["amount_usd"] == "0.00001"), None)

    budget = wait_until(found, 120, "the budget is made")
    assert not budget["is_hard"]

    def events() -> Any:
        told: Any = walk.installation.request("GET", f"{budgets}/{budget['id']}")
        return told["events"]

    with openai.OpenAI(
        base_url=f"{walk.installation.gateway_url}/v1", api_key=made["secret"], max_retries=0, timeout=20
    ) as client:
        # Each time one request: a budget counts from when the gateway knows it, which may be after it knows the key.
        wait_until(lambda: answers(client) and poll_within(events, 10), 60, "the budget's threshold is passed")

    def raised() -> str:
        alerts = walk.told("alerts", "list", "--tenant", walk.globex)
        return next((str(one["summary"]) for one in alerts if one["kind"] == "budget_threshold"), "")

    summary = wait_until(raised, 60, "the budget's alert is raised")
    walk.visit(page, f"budgets?tenant={walk.globex}&tab=alerts")
    playwright.expect(page.locator("body")).to_contain_text(summary, timeout=PATIENCE_MS)


def answers(client: openai.OpenAI) -> bool:
    try:
        client.chat.completions.create(
            model="scripted-1", messages=[{"role": "user", "content": "a few words [[script tokens=40]]"}]
        )
    except UNKNOWN_KEY:
        return False
    return True


@contextmanager
def signed_in(walk: Walk, role: str, title: str) -> Iterator[tuple[Any, str]]:
    """Provide a page of somebody of acme's team search, signed in, and the session's token; `title` opens first."""
    email, password = f"{role}-{time.time_ns()}@example.com", secrets.token_urlsafe(18)
    reach = {"role": role, "tenant": walk.acme, "team": "search"}
    walk.installation.request("POST", "/v1/accounts", {"email": email, "name": "Lee", "password": password, **reach})
    context = walk.browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.goto(f"{walk.installation.dashboard_url}/sign-in")
    page.get_by_label("E-mail").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    playwright.expect(page.locator("h1", has_text=title)).to_be_visible(timeout=PATIENCE_MS)
    (token,) = (one["value"] for one in context.cookies() if one["name"] == "tollkeeper_session")
    yield page, token
    context.close()


@pytest.fixture
def lead(walk: Walk) -> Iterator[tuple[Any, str]]:
    """A page of the lead of acme's team search, and the token of the session."""
    with signed_in(walk, "team_lead", "Overview") as found:
        yield found


def test_a_developer_signs_in_and_has_a_capped_key_that_works(walk: Walk) -> None:
    with signed_in(walk, "developer", "My keys") as (page, token):
        page.get_by_role("button", name="Create key").click()
        shown = page.get_by_test_id("stDialog").get_by_test_id("stCode")
        playwright.expect(shown).to_be_visible(timeout=PATIENCE_MS)
        secret = (shown.text_content() or "").strip()
        page.get_by_role("button", name="I have copied it").click()
        with openai.OpenAI(
            base_url=f"{walk.installation.gateway_url}/v1", api_key=secret, max_retries=0, timeout=20
        ) as client:
            wait_until(lambda: answers(client), 30, "the key works")
        keys = f"{walk.installation.control_url}/v1/self/keys"
        request = urllib.request.Request(keys, headers={"Authorization": f"Bearer {token}"})

        def used() -> bool:
            (key,) = json.load(urllib.request.urlopen(request, timeout=10))["data"]
            return key["cap_usd"] == "10" and Decimal(key["spent_usd"]) > 0

        wait_until(used, 60, "the page knows what the key has used")
        assert_accessible(page, "my keys of a developer")


def asked(url: str, token: str, method: str = "GET", body: object = None) -> int:
    """Return the status of a request of a program that has the session's token."""
    request = urllib.request.Request(
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_team_lead_reaches_no_other_team(walk: Walk, lead: tuple[Any, str]) -> None:
    page, token = lead
    theirs = next(row for row in walk.rows.requests if row.who.tenant == walk.acme and row.who.team == "support")
    foreign = next(row for row in walk.rows.requests if row.who.tenant == walk.globex and row.outcome == "ok")
    # by address: another tenant, another team, another's request
    for path in (
        f"costs?range=7d&tenant={walk.globex}",
        f"routing?range=7d&tenant={walk.acme}&team=support",
        f"requests?request={theirs.request_id.hex()}",
        f"requests?request={foreign.request_id.hex()}",
    ):
        text = walk.visit(page, path).locator("body").text_content() or ""
        assert theirs.who.key_id not in text and foreign.who.key_id not in text, path
        assert not page.get_by_test_id("stMetric").count(), f"{path} shows figures"
        assert "Traceback" not in text
    # by export
    walk.visit(page, "requests?range=24h")
    listed = exported(page, "requests_list_1")
    assert walk.acme in listed and "search" in listed
    assert "support" not in listed and walk.globex not in listed
    # by form: a budget of another team
    walk.visit(page, "budgets?new=budget")
    page.get_by_label("Amount", exact=True).fill("5")
    choose(page, "Level", "team")
    page.get_by_label("Subject", exact=True).fill("support")
    page.get_by_role("button", name="Create budget").click()
    playwright.expect(page.get_by_test_id("stAlert").first).to_be_visible(timeout=PATIENCE_MS)
    budgets: Any = walk.installation.request("GET", f"/v1/tenants/{walk.acme}/budgets")
    assert not [budget for budget in budgets["data"] if budget["subject"] == "support"]
    # by query: the control plane's and the analytics process's own HTTP
    control, analytics = walk.installation.control_url, walk.installation.analytics_url
    assert asked(f"{control}/v1/tenants/{walk.acme}/keys", token) == 200
    assert asked(f"{control}/v1/tenants/{walk.globex}/keys", token) == 404
    assert asked(f"{control}/v1/tenants/{walk.acme}/teams/support", token) == 404
    assert asked(f"{control}/v1/tenants/{walk.acme}/keys", token, "POST", {"name": "x", "team": "support"}) >= 400
    reading = {"name": "walk", "role": "team_lead", "tenant": walk.acme, "team": "search"}
    made: Any = walk.installation.request("POST", "/v1/tokens", reading)
    begin, end = whole_days()
    days = f"from={begin:%Y-%m-%dT%H:%M:%SZ}&to={end:%Y-%m-%dT%H:%M:%SZ}"
    assert asked(f"{analytics}/v1/costs?{days}&by=team", made["secret"]) == 200
    assert asked(f"{analytics}/v1/costs?{days}&by=team&tenant={walk.globex}", made["secret"]) == 404
    assert asked(f"{analytics}/v1/costs?{days}&by=team&team=support", made["secret"]) == 404


@pytest.mark.parametrize("path", ["", *(page.path for page in PAGES[1:])])  # the first page has no path
def test_every_page_is_accessible(walk: Walk, page: Any, path: str) -> None:
    page.emulate_media(color_scheme="light")
    walk.visit(page, f"{path}?range=1h")
    assert not page.get_by_test_id("stException").count()
    assert_accessible(page, f"{path} in the light")
    ground = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")  # the page follows the viewer's system without a reload
    page.wait_for_function(f"{ground} !== '{light}'", timeout=PATIENCE_MS)
    page.wait_for_timeout(300)  # colours fade into one another
    assert_accessible(page, f"{path} in the dark")
    page.set_viewport_size({"width": 390, "height": 844})
    walk.visit(page, f"{path}?range=1h")
    assert_accessible(page, f"{path} on a telephone")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "nothing stands beside the screen"
