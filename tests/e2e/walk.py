"""A browser at an installation's dashboard: pages that have settled, figures, exports, and what axe says of them."""

import csv
import io
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.e2e.installation import Installation
from tests.steady_time import poll_within
from tollkeeper.cli import app

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
PATIENCE_MS = 30_000
SETTLED = """() => {
    const app = document.querySelector('[data-testid="stApp"]');
    return app?.getAttribute('data-test-script-state') === 'notRunning' && document.querySelector('h1')
        && !document.querySelector('[data-testid="stSkeleton"]');
}"""
AXE_OPTIONS = {"resultTypes": ["violations"], "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}


@dataclass
class Browsing:
    """The browser and the installation."""

    browser: Any
    installation: Installation

    def visit(self, page: Any, path: str, patience_ms: int = PATIENCE_MS) -> Any:
        page.goto(f"{self.installation.dashboard_url}/{path}")
        page.wait_for_function(SETTLED, timeout=patience_ms)
        return page

    def told(self, *arguments: str) -> Any:
        """Return what the command line says, as JSON."""
        done = CliRunner().invoke(app, [*arguments, "--data", str(self.installation.data), "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)


def require_chromium() -> None:
    """Skip if there is none, unless services are required."""
    if not CHROMIUM.exists():
        if os.environ.get("REQUIRE_SERVICES") == "1":
            pytest.fail("Chromium is not installed; apt-get install chromium")
        pytest.skip("Chromium is not installed; apt-get install chromium")


def figure(page: Any, label: str) -> Any:
    """The value of a key figure."""
    card = page.get_by_test_id("stMetric").filter(has_text=re.compile(f"^{re.escape(label)}"))
    return card.get_by_test_id("stMetricValue").first


def fill(page: Any, label: str, text: str) -> None:
    """Write into a field and leave it, and wait until the page has taken it."""
    field = page.get_by_label(label, exact=True).first
    field.fill(text)
    field.press("Tab")
    page.wait_for_timeout(150)
    page.wait_for_function(SETTLED, timeout=PATIENCE_MS)


def choose(page: Any, label: str, option: str) -> None:
    page.get_by_role("combobox", name=re.compile(label)).first.click()
    page.get_by_role("option", name=option, exact=True).click()


def exported(page: Any, key: str) -> str:
    """Return the CSV of a chart or table."""
    page.locator(f".st-key-export_{key} button").first.click()
    with page.expect_download(timeout=PATIENCE_MS) as download:
        page.locator(f".st-key-export_{key}_csv button").click()
    page.keyboard.press("Escape")
    return Path(download.value.path()).read_text()


def exported_rows(page: Any, key: str) -> list[dict[str, str]]:
    """Return the rows of that CSV."""
    return list(csv.DictReader(io.StringIO(exported(page, key))))


def assert_accessible(page: Any, where: str) -> None:
    """Look again while something is wrong: what a page draws again is pale for a moment, and too pale to read."""
    found: list[tuple[str, list[str]]] = []

    def is_accessible() -> bool:
        found[:] = violations(page)
        return not found

    assert poll_within(is_accessible, 15), f"{where}: {found}"


def violations(page: Any) -> list[tuple[str, list[str]]]:
    """Return what axe finds serious or critical: each rule, and where it is broken."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page, options=AXE_OPTIONS).response["violations"]
    return [
        (one["id"], [node["html"][:160] for node in one["nodes"][:3]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
