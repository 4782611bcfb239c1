"""`python -m bench.screenshots`: a picture of every page of the dashboard, light and dark, of the showcase's records.

Starts an installation of its own, fills it, looks at it with the system's Chromium and stops it; `--data DIR` looks at
one that runs instead. Pictures are PNGs of at most 128 colours, which is all a dashboard has.
"""

import argparse
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from PIL import Image

from analytics.cost.periods import month_of
from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from bench.page_failures import failure_of
from bench.showcase_books import fill_books
from contracts.rules.periods import zone_of
from tollkeeper.installation import Installation
from tollkeeper.open_installation import open_control
from tollkeeper.showcase.fill import fill_showcase

ROOT: Final = Path(__file__).resolve().parents[1]
OUT: Final = ROOT / "docs" / "screenshots"
CHROMIUM: Final = Path("/usr/bin/chromium")
FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
)
# What each page is opened with; a path may stand for several pictures.
PAGES: Final = {
    "overview": "?range=24h",  # the first page has no path
    "costs": "costs?range=7d",
    "costs-by-tag": "costs?range=7d&level=tag",
    "costs-allocations": "costs?range=7d&view=allocations",
    "books": "books",
    "reconciliation": "reconciliation",
    "agents": "agents?range=24h",
    "gpu": "gpu?range=1h",
    "latency": "latency?range=1h",
    "requests": "requests?range=1h",
    "incident": "incident?range=1h",
    "routing": "routing?range=1h",
    "budgets": "budgets",
    "planner": "planner",
    "my-keys": "my-keys",
    "playground": "playground",
    "admin": "admin",
    "admin-keys": "admin?section=keys&of=acme",
}
SETTLED: Final = """() => {
    const app = document.querySelector('[data-testid="stApp"]');
    return app && app.getAttribute('data-test-script-state') === 'notRunning'
        && !document.querySelector('[data-testid="stSkeleton"]')
        && document.querySelector('h1');
}"""
# The lines by which a page may say that it failed, as its Markdown was.
WORDS: Final = """() => [
    ...[...document.querySelectorAll('[data-testid="stMain"] h4')].map(title => '#### ' + title.innerText),
    ...[...document.querySelectorAll('[aria-label="error icon"], [aria-label="lock icon"]')].map(
        icon => `:material/${icon.innerText}: ` + icon.parentElement.innerText.replace(icon.innerText, '').trim()
    ),
].join('\\n')"""
_ALLOCATIONS: Final = """allocations:
  teams:
    by: team
    shared:
      - {name: support desk, source: fixed, usd: "12", by: even}
      - {name: agreed discount, source: commitment, usd: "-365", starts: 2026-01-01, ends: 2027-01-01}
"""
_MAX_HEIGHT: Final = 2_400
_COLOURS: Final = 128
_READY_SECONDS: Final = 150.0
_SETTLE_SECONDS: Final = 30.0  # a machine that does other things draws slowly, too


def main(arguments: Sequence[str] | None = None) -> int:
    """Create the pictures. Gives 1 where a page says that something failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.screenshots", description=__doc__)
    parser.add_argument("--data", type=Path, help="the data directory of an installation that runs and is filled")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--width", type=int, default=1440)
    parser.add_argument("--only", nargs="*", default=list(PAGES), choices=list(PAGES))
    parser.add_argument("--schemes", nargs="*", default=["light", "dark"], choices=["light", "dark"])
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    with _installation(asked.data) as installation:
        url = installation.address_of("dashboard")
        if url is None:
            print("the installation has no dashboard", file=sys.stderr)
            return 1
        failures = [
            f"{name}: {said}" for name, said in take(url, asked.out, asked.only, asked.schemes, asked.width) if said
        ]
    print("\n".join(failures), file=sys.stderr)
    return bool(failures)


def take(url: str, out: Path, names: Sequence[str], schemes: Sequence[str], width: int) -> Iterator[tuple[str, str]]:
    """Remove and return each picture, and yield its name with what the page says went wrong; empty if nothing did."""
    from playwright.sync_api import sync_playwright  # here: only who looks at pages needs it

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        for scheme in schemes:
            wanted: Any = scheme  # one of its words: the parser sees to that
            context: Any = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=wanted)
            page = context.new_page()
            for name in names:
                page.set_viewport_size({"width": width, "height": 900})
                page.goto(f"{url}/{PAGES[name]}")
                is_settled = settle(page)
                page.set_viewport_size({"width": width, "height": min(_height(page), _MAX_HEIGHT)})
                is_settled = settle(page) and is_settled
                write_small(page.screenshot(), out / f"{name}-{scheme}.png")
                yield f"{name}-{scheme}", fault_of(page, is_settled=is_settled)
            context.close()
        browser.close()


def fault_of(page: Any, *, is_settled: bool) -> str:
    """Return what is wrong with a page that has been looked at; empty: nothing."""
    if page.locator('[data-testid="stException"]').count():
        return "a traceback"
    failure = failure_of(page.evaluate(WORDS))
    if failure:
        return f"it says {failure!r}"
    return "" if is_settled else f"still drawing after {_SETTLE_SECONDS:g} s"


def settle(page: Any) -> bool:
    """Wait until a page has drawn all it has to say, charts too; return whether it came to that."""
    from playwright.sync_api import TimeoutError as Late  # here, as above

    try:
        page.wait_for_function(SETTLED, timeout=_SETTLE_SECONDS * 1000)
        page.wait_for_timeout(700)  # charts and tables are drawn by the browser after the run's end
        page.wait_for_function(SETTLED, timeout=_SETTLE_SECONDS * 1000)
    except Late:
        return False
    return True


def write_small(png: bytes, path: Path) -> None:
    """Write a picture with a palette of its own colours."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)


def _height(page: Any) -> int:
    """Return the height that a page needs to be seen whole."""
    return int(
        page.evaluate(
            """() => Math.max(900, ...[...document.querySelectorAll('[data-testid="stMain"]')]
                .map(main => main.scrollHeight))"""
        )
    )


@contextmanager
def _installation(data: Path | None) -> Iterator[Installation]:
    if data is not None:
        yield Installation(data)
        return
    with tempfile.TemporaryDirectory(prefix="tollkeeper-") as home:
        installation = Installation(Path(home) / "data")
        log = (Path(home) / "up.log").open("w+")
        command = [sys.executable, "-m", "tollkeeper", "up", "--no-engine", "--data", str(installation.data)]
        rules = Path(home) / "allocations.yaml"
        rules.write_text(_ALLOCATIONS)
        process = subprocess.Popen(
            [*command, "--port-base", "18400"],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=home,
            env={**os.environ, "TOLLKEEPER_ALLOCATIONS": str(rules)},
        )
        try:
            _wait_until_ready(process, Path(log.name))
            fill_showcase(installation)
            _fill_books(installation)
            yield installation
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _fill_books(installation: Installation) -> None:
    """Fill last month, so that there are books: closed months, invoices, a correction and a provider's bill."""
    now = datetime.now(UTC)
    last = now.replace(day=1) - timedelta(days=1)
    store_url = installation.address_of("store")
    assert store_url is not None
    store = StoreClient(StoreAddress.resolve(store_url, "tollkeeper", "writer", SecretFiles(installation.secrets)))
    with open_control(installation.data, os.environ) as database:
        fill_books(store, database, now, month_of(last.year, last.month, zone_of("UTC")), prefix="")
    store.close()


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while "Tollkeeper is ready" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the installation does not start:\n{log.read_text()[-3000:]}")
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
