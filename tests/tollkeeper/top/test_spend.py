"""Who spent what, as the store has it, and the whole command against it."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typer.testing import CliRunner

from backends.store.client import StoreClient
from contracts.access.identity import Identity
from contracts.metering.usage import Usage
from tests.analytics.conftest import reader as reader
from tests.analytics.conftest import record as record
from tests.analytics.cost.records import request
from tollkeeper.cli import app
from tollkeeper.top.spend import spend_by_tenant

_NOW = datetime(2048, 5, 20, 12, 30, tzinfo=UTC)  # far ahead of the clock, where nothing expires


@pytest.fixture
def gateway() -> Iterator[str]:
    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'tollkeeper_requests_total{model="m",outcome="ok"} 5\n')

        def log_message(self, format: str, *args: Any) -> None:
            """Do nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_today_and_this_month_are_those_of_utc(reader: StoreClient, record: Any) -> None:
    days = {
        "today": _NOW - timedelta(hours=1),
        "this month": _NOW - timedelta(days=2),
        "before": datetime(2048, 4, 30, 23, 59, tzinfo=UTC),
    }
    record([request(at, who=Identity("top-a"), cost_pico_usd=1_000_000_000_000) for at in days.values()])
    record([request(_NOW, who=Identity("top-b"), usage=Usage(input_text=1, output_text=1))])
    found = {one.tenant: one for one in spend_by_tenant(reader, _NOW)}
    assert (found["top-a"].usd_today, found["top-a"].usd_month) == (Decimal(1), Decimal(2))
    assert found["top-a"].requests_today == 1
    assert (found["top-b"].usd_month, found["top-b"].unpriced_month) == (None, 1)


def test_the_command_prints_what_machines_can_read(gateway: str, reader: StoreClient, tmp_path: Any) -> None:
    words = ["top", "--json", "--interval", "0.2", "--data", str(tmp_path), "--gateway-url", gateway]
    done = CliRunner().invoke(app, [*words, "--store-url", "http://127.0.0.1:1"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["models"][0]["model"] == "m"
    assert found["tenants"] is None
    assert found["tenants_missing"]


def test_a_gateway_that_is_not_there_is_one_line(tmp_path: Any) -> None:
    done = CliRunner().invoke(app, ["top", "--once", "--data", str(tmp_path), "--gateway-url", "http://127.0.0.1:1"])
    assert done.exit_code == 2
    assert "tollkeeper up" in done.stderr and "Traceback" not in done.output
