"""The walk over what watches: guardrails, a rollout with both arms, the audit's verification, saved views.

Each on a real control plane and gateway, with numbers compared with the command line's.
"""

import re
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import openai
import pytest

from dashboard import formats
from tests.e2e.installation import Installation, wait_until
from tests.e2e.walk import (
    CHROMIUM,
    FLAGS,
    PATIENCE_MS,
    SETTLED,
    Browsing,
    assert_accessible,
    exported_rows,
    figure,
    require_chromium,
)

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = [pytest.mark.e2e, pytest.mark.service, pytest.mark.drill]

CARD = "my card is 4111 1111 1111 1111, my address ann@example.com"
LEAKED = "the key is AKIAIOSFODNN7EXAMPLE"
STAGES = [
    {
        **{"name": "cards", "detector": "pii", "direction": "both", "action": "redact"},
        "settings": {"kinds": ["card", "email"]},
    },
    {"name": "keys", "detector": "secrets", "action": "block"},
    {"name": "words", "detector": "deny", "action": "flag", "dry_run": True, "settings": {"keywords": ["blue moon"]}},
]  # fmt: skip


@pytest.fixture(scope="module")
def browsing(installation: Installation) -> Iterator[Browsing]:
    require_chromium()
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield Browsing(browser, installation)
        browser.close()


@pytest.fixture
def page(browsing: Browsing) -> Iterator[Any]:
    context = browsing.browser.new_context(
        viewport={"width": 1440, "height": 900}, locale="en-US", timezone_id="UTC", accept_downloads=True
    )
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def name() -> str:
    """What this walk's tenant, route, guardrail and rollout are called."""
    return f"safe{time.time_ns() % 10**6}"


@pytest.fixture(scope="module")
def key(browsing: Browsing, name: str) -> str:
    """The key of a tenant of its own, whose route has a guardrail and a rollout with half of it for the candidate."""
    ask = browsing.installation.request
    ask("POST", "/v1/tenants", {"id": name, "name": "Walk of safety"})
    made: Any = ask("POST", f"/v1/tenants/{name}/keys", {"name": "walk"})
    ask("POST", "/v1/pools", {"id": name})
    ask("POST", f"/v1/pools/{name}/targets", {"id": f"{name}-1", "kind": "scripted"})
    ask("POST", "/v1/models", {"id": f"{name}-new", "pool": name})
    rates = {"input_text": "0.1", "output_text": "0.5"}
    ask("POST", "/v1/prices", {"model": f"{name}-new", "version": f"{name}/1", "usd_per_mtok": rates})
    ask("POST", "/v1/routes", {"id": name, "rules": {"choose": [{"model": "scripted-1", "weight": 1}]}})
    rules = {"steps": [{"percent": 50, "min_minutes": 60, "min_requests": 5000}, {"percent": 100}]}
    arms = {"incumbent": "scripted-1", "candidate": f"{name}-new"}
    ask("POST", "/v1/rollouts", {"id": name, "route": name, **arms, "rules": rules})
    # Last: a gateway that knows it knows the rollout too, so that all who are asked for then take part.
    ask("POST", "/v1/guardrails", {"name": name, "rules": {"tenants": [name], "stages": STAGES}})
    return str(made["secret"])


@pytest.fixture(scope="module")
def asked(browsing: Browsing, name: str, key: str) -> int:
    """Ask as forty users, until the store knows of both arms; provide how many requests were answered."""
    with openai.OpenAI(
        base_url=f"{browsing.installation.gateway_url}/v1", api_key=key, max_retries=0, timeout=20
    ) as client:
        wait_until(lambda: _ask(client, name, "hello", "first") == 200, 120, "the gateway knows the key and the route")
        wait_until(lambda: _ask(client, name, LEAKED, "second") == 400, 120, "the gateway knows the guardrail")
        for number in range(40):
            text = CARD if number % 4 == 0 else "once in a blue moon" if number % 4 == 1 else "hello"
            assert _ask(client, name, text, f"user-{number}") == 200

    def counted() -> int:
        report = browsing.told("rollout", "report", name, "--hours", "1")
        return int(report["incumbent_requests"] + report["candidate_requests"])

    # What was asked before the gateway knew of the rollout took no part.
    wait_until(lambda: counted() >= 40, 60, "the store knows of both arms")
    return counted()


def _ask(client: openai.OpenAI, route: str, text: str, user: str) -> int:
    try:
        client.chat.completions.create(
            model=route, user=user, messages=[{"role": "user", "content": f"{text} [[script tokens=12]]"}]
        )
    except openai.APIStatusError as error:
        return error.status_code
    return 200


def test_guardrails_are_shown_with_what_they_found(browsing: Browsing, page: Any, name: str, asked: int) -> None:
    said = {
        (row["stage"], row["direction"]): row
        for row in browsing.told("guardrails", "report", "--tenant", name)["stages"]
    }
    assert said["cards", "input"]["requests"] == 10 and said["words", "input"]["requests"] == 10
    assert said["keys", "input"]["action"] == "block" and said["words", "input"]["mode"] == "dry"
    browsing.visit(page, "admin?section=guardrails")
    page.wait_for_selector(".st-key-export_admin_guardrails_found", timeout=PATIENCE_MS)
    found = [row for row in exported_rows(page, "admin_guardrails_found") if row["Tenant"] == name]
    sides = {"before the model": "input", "after the model": "output"}
    shown = {(row["Stage"], sides[row["Where"]]): row for row in found}
    assert set(shown) == set(said)
    for stage, row in said.items():
        assert [int(shown[stage][of]) for of in ("Requests", "Findings", "of_requests")] == [
            row[of] for of in ("requests", "findings", "of_requests")
        ]
        assert shown[stage]["dry"] == str(row["mode"] == "dry")
    (policy,) = (row for row in exported_rows(page, "admin_guardrails") if row["Guardrail"] == name)
    assert policy["Before the model"] == "cards: redact › keys: block › words: flag (dry)"
    assert policy["After the model"] == "cards: redact"
    assert_accessible(page, "guardrails")


def test_a_rollout_is_shown_with_both_arms(browsing: Browsing, page: Any, name: str, asked: int) -> None:
    now = datetime.now(UTC)  # a range that does not move: what is exported stands still
    during = f"from={now - timedelta(hours=1):%Y-%m-%dT%H:%MZ}&to={now + timedelta(hours=1):%Y-%m-%dT%H:%MZ}"
    # Intervals are computed beside the page, behind all else that the machine does.
    browsing.visit(page, f"routing?{during}&rollout={name}", 3 * PATIENCE_MS)
    page.wait_for_selector(".st-key-export_routing_rollout_arms", timeout=3 * PATIENCE_MS)
    said = browsing.told("rollout", "report", name, "--hours", "1")
    assert said["incumbent_requests"] > 5 and said["candidate_requests"] > 5
    assert said["incumbent_requests"] + said["candidate_requests"] == asked
    for label, of in (
        ("Incumbent's requests", "incumbent_requests"),
        ("Candidate's requests", "candidate_requests"),
        ("Copies", "copies"),
    ):
        playwright.expect(figure(page, label)).to_have_text(formats.count(said[of]), timeout=PATIENCE_MS)
    shown = {row["measure"]: row for row in exported_rows(page, "routing_rollout_arms")}
    lines = [line for line in said["lines"] if line["of"] == "arms"]
    assert set(shown) == {line["measure"] for line in lines} and len(lines) >= 10
    for line in lines:
        for arm in ("incumbent", "candidate"):
            assert (shown[line["measure"]][arm] or None) == (None if line[arm] is None else str(line[arm])), line
        told = line["comparison"]
        interval = (
            "" if told is None or None in (told["low"], told["high"]) else f"{told['low']:.4g} to {told['high']:.4g}"
        )
        assert not interval or shown[line["measure"]]["95 %"].lstrip("'") == interval  # no formula
    (row,) = (row for row in exported_rows(page, "routing_rollouts") if row["Rollout"] == name)
    assert (row["Candidate"], float(row["Share"]), row["Step"], row["Steps"]) == (f"{name}-new", 50.0, "1", "2")
    standing: Any = browsing.installation.request("GET", f"/v1/rollouts/{name}/standing")
    arms = exported_rows(page, "routing_rollout_standing")
    assert [int(arm["Requests"]) for arm in arms] == [standing[arm]["requests"] for arm in ("incumbent", "candidate")]
    browsing.visit(page, f"routing?range=24h&rollout={name}", 3 * PATIENCE_MS)  # without Streamlit's fields for dates
    page.wait_for_selector(".st-key-export_routing_rollout_arms", timeout=3 * PATIENCE_MS)
    assert_accessible(page, "rollouts")


def test_the_audit_is_said_to_verify_as_the_command_line_says(browsing: Browsing, page: Any) -> None:
    def agrees() -> bool:
        browsing.visit(page, "admin?section=audit")
        page.get_by_role("button", name=re.compile("Verify again")).click()
        page.wait_for_timeout(1500)
        page.wait_for_function(SETTLED, timeout=PATIENCE_MS)
        said = {place["place"]: place for place in browsing.told("audit", "verify")["places"]}
        changes = said["control database"]
        rows = {row["What"]: row for row in exported_rows(page, "admin_audit_places")}
        chain = rows["external signed log (audit/control)"]
        return (
            figure(page, "The log").inner_text() == "verified"
            and figure(page, "Changes up to entry").inner_text() == formats.count(changes["last"])
            and figure(page, "Verified up to").inner_text() == formats.count(changes["confirmed_upto"])
            and [int(chain[of]) for of in ("Entries", "Checkpoints", "Signed until entry")]
            == [said["control"][of] for of in ("entries", "checkpoints", "signed_upto")]
        )

    wait_until(agrees, 90, "the page and the command line saw the same log")
    assert_accessible(page, "audit")


def test_a_view_is_kept_under_a_name_opened_and_renamed(browsing: Browsing, page: Any, name: str) -> None:
    browsing.visit(page, "requests?range=24h&outcome=rejected&q=status:400")
    _menu(page)
    page.get_by_label("Save this view as").fill(f"Refused {name}")
    page.get_by_role("button", name="Save view", exact=True).click()

    def kept() -> list[Any]:
        views: Any = browsing.installation.request("GET", "/v1/saved-views")
        return [view for view in views["data"] if name in view["name"]]

    (view,) = wait_until(kept, 120, "the view is kept")
    assert view["parameters"] == {"outcome": "rejected", "q": "status:400", "range": "24h"}
    browsing.visit(page, "requests?range=1h&outcome=error&sort=cost")
    _menu(page)
    page.get_by_role("button", name=f"Refused {name}", exact=True).click()
    page.wait_for_url(re.compile(r"outcome=rejected"), timeout=PATIENCE_MS)
    assert "range=24h" in page.url and "sort=" not in page.url and "q=status" in page.url
    browsing.visit(page, "requests")
    _menu(page)
    page.locator(f".st-key-saved_view_edit_{view['id']} button").first.click()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill(f"Turned away {name}")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    wait_until(lambda: kept()[0]["name"] == f"Turned away {name}", 120, "the view is renamed")
    browsing.installation.request("DELETE", f"/v1/saved-views/{view['id']}")


def test_a_view_of_the_platform_is_not_a_leads(browsing: Browsing, page: Any, name: str, key: str) -> None:
    body = {"name": f"All of {name}", "parameters": {"tenant": "demo"}, "is_shared": True}
    made: Any = browsing.installation.request("POST", "/v1/saved-views", body)
    email, password = f"lead-{name}@example.com", secrets.token_urlsafe(18)
    browsing.installation.request("POST", f"/v1/tenants/{name}/teams", {"id": "search", "name": "Search"})
    role = {"role": "team_lead", "tenant": name, "team": "search"}
    browsing.installation.request("POST", "/v1/accounts", {"email": email, "name": "L", "password": password, **role})
    page.goto(f"{browsing.installation.dashboard_url}/sign-in")
    page.get_by_label("E-mail").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    playwright.expect(page.locator("h1", has_text="Overview")).to_be_visible(timeout=PATIENCE_MS)
    browsing.visit(page, "requests")
    _menu(page)
    playwright.expect(page.get_by_text("No saved views.")).to_be_visible(timeout=PATIENCE_MS)
    shown = (page.get_by_test_id("stPopoverBody").text_content() or "").lower()
    assert name not in shown.replace(f"everyone of {name}", "")
    browsing.installation.request("DELETE", f"/v1/saved-views/{made['id']}")


def _menu(page: Any) -> None:
    page.locator(".st-key-saved_views_requests button").first.click()
    page.get_by_label("Save this view as").wait_for(timeout=PATIENCE_MS)
