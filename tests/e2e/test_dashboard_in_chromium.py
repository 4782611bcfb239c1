"""What a viewer sees: the overview in the system's Chromium, against the numbers of the store."""

import os
import re
import time
from pathlib import Path

import openai
import pytest

from tests.e2e.installation import Installation

playwright = pytest.importorskip("playwright.sync_api")

pytestmark = [pytest.mark.e2e, pytest.mark.service]

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


# Marks everything on the page as Streamlit marks what it has not drawn again yet, and returns how opaque it is then.
PALED = """() => [...document.querySelectorAll('[data-stale]')].map(element => {
    element.setAttribute('data-stale', 'true');
    element.style.opacity = 0.33;
    return getComputedStyle(element).opacity;
})"""


@pytest.fixture
def page():
    if not CHROMIUM.exists():
        if os.environ.get("REQUIRE_SERVICES") == "1":
            pytest.fail("Chromium is not installed; apt-get install chromium")
        pytest.skip("Chromium is not installed; apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser.new_page(viewport={"width": 1440, "height": 900})
        browser.close()


def test_a_request_stands_on_the_overview(installation: Installation, page):
    tenant = f"seen-{time.time_ns() % 10**9}"
    installation.request("POST", "/v1/tenants", {"id": tenant, "name": tenant})
    made = installation.request("POST", f"/v1/tenants/{tenant}/keys", {"name": "viewer"})
    assert isinstance(made, dict)
    time.sleep(0.6)  # the gateway looks for new keys four times a second
    with openai.OpenAI(
        base_url=f"{installation.gateway_url}/v1", api_key=made["secret"], max_retries=0, timeout=20
    ) as client:
        for _ in range(7):
            client.chat.completions.create(
                model="scripted-1",
                messages=[{"role": "user", "content": "two words [[script tokens=11]]"}],
            )

    page.goto(f"{installation.dashboard_url}/?tenant={tenant}")
    requests = page.get_by_test_id("stMetric").filter(has_text=re.compile("^Requests"))
    playwright.expect(requests.get_by_test_id("stMetricValue")).to_have_text("7", timeout=30_000)
    tokens = page.get_by_test_id("stMetric").filter(has_text=re.compile("^Output tokens"))
    playwright.expect(tokens.get_by_test_id("stMetricValue")).to_have_text("77")
    assert "Traceback" not in page.content()
    opacities = page.evaluate(PALED)
    assert opacities and set(opacities) == {"1"}, "what waits to be drawn again stays readable"
