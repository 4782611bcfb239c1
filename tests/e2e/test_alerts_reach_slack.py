"""Alerts down the whole road: traffic through the gateway, and a Slack-shaped receiver that is called once for each."""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openai
import pytest

from tests.e2e.installation import UNKNOWN_KEY, Installation, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.drill]

ASKED = 8
PATIENCE_SECONDS = 120.0


@pytest.fixture
def slack() -> Iterator[tuple[str, list[str]]]:
    """An incoming webhook: its URL, and the texts that were posted to it."""
    texts: list[str] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["text"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/services/T0/B0/x", texts
    server.shutdown()
    server.server_close()


@pytest.fixture
def tenant(installation: Installation) -> str:
    name = f"tenant-{time.time_ns()}"
    installation.request("POST", "/v1/tenants", {"id": name, "name": name})
    return name


def key_of(installation: Installation, tenant: str) -> str:
    """A key that the gateway knows."""
    key: Any = installation.request("POST", f"/v1/tenants/{tenant}/keys", {"name": "app"})

    def is_served() -> bool:
        with openai.OpenAI(base_url=f"{installation.gateway_url}/v1", api_key=key["secret"], max_retries=0) as client:
            try:
                return bool(client.models.list().data)
            except UNKNOWN_KEY:
                return False

    wait_until(is_served, PATIENCE_SECONDS, "the gateway knows the key")
    return str(key["secret"])


def ask_slowly(installation: Installation, key: str) -> None:
    """Stream some chats whose first token comes late."""
    message: Any = [{"role": "user", "content": "go [[script tokens=40 first_ms=80]]"}]
    with openai.OpenAI(base_url=f"{installation.gateway_url}/v1", api_key=key, max_retries=0, timeout=20) as client:
        for _ in range(ASKED):
            list(client.chat.completions.create(model="scripted-1", messages=message, stream=True))


def batch_status(installation: Installation, key: str) -> int:
    """Ask in class batch; return the status."""
    message: Any = [{"role": "user", "content": "go"}]
    with openai.OpenAI(base_url=f"{installation.gateway_url}/v1", api_key=key, max_retries=0, timeout=20) as client:
        try:
            client.chat.completions.create(
                model="scripted-1", messages=message, extra_headers={"x-tollkeeper-priority": "batch"}
            )
        except openai.APIStatusError as error:
            return error.status_code
        return 200


def answer(installation: Installation, path: str) -> Any:
    request = urllib.request.Request(
        installation.analytics_url + path, headers={"authorization": f"Bearer {installation.admin_token}"}
    )
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.loads(reply.read())


def test_a_budget_and_a_burning_objective_call_slack_once_each(
    installation: Installation, tenant: str, slack: tuple[str, list[str]]
) -> None:
    url, texts = slack
    channel, objective = f"slack-{tenant}", f"ttft-{tenant}"
    make = installation.request
    make("POST", "/v1/alert-channels", {"id": channel, "kind": "slack", "address": url, "tenant": tenant})
    budget = {"level": "tenant", "period": "month", "amount_usd": "0.0001", "is_hard": False, "thresholds": [50]}
    make("POST", f"/v1/tenants/{tenant}/budgets", budget)
    promise = {"indicator": "ttft", "thresholds_ms": {"ttft": "50"}, "target_percent": "99", "min_events": ASKED}
    make("POST", "/v1/slos", {"id": objective, "tenant": tenant, "hooks": ["shed_batch"], **promise})
    for kind in ("budget_threshold", "slo_burn"):
        rule = {"id": f"{kind.replace('_', '-')}-{tenant}", "kind": kind, "tenant": tenant, "channels": [channel]}
        make("POST", "/v1/alert-rules", rule)
    make("POST", f"/v1/alert-channels/{channel}/test")
    wait_until(lambda: texts == ["Test: this channel works"], PATIENCE_SECONDS, "the test arrives")

    key = key_of(installation, tenant)
    ask_slowly(installation, key)

    wait_until(lambda: len(texts) >= 3, PATIENCE_SECONDS, "both alerts arrive")
    raised = answer(installation, "/v1/alerts?open=true&limit=1000")["data"]
    mine = {row["kind"]: row for row in raised if row["tenant"] == tenant}
    assert set(mine) == {"budget_threshold", "slo_burn"}
    assert mine["budget_threshold"]["facts"]["threshold_percent"] == 50
    assert mine["slo_burn"]["severity"] == "page"
    holds: Any = make("GET", "/v1/policy-holds")
    assert [hold["hook"] for hold in holds["data"] if hold["slo_id"] == objective] == ["shed_batch"]

    def standing() -> Any:
        (row,) = [row for row in answer(installation, "/v1/slos?limit=1000")["data"] if row["id"] == objective]
        return row if row["requests"] == ASKED else None

    stands = wait_until(standing, PATIENCE_SECONDS, "all requests are counted")
    assert (stands["bad_requests"], stands["status"]) == (ASKED, "broken")

    looks = answer(installation, "/ready")["alerts"]["looked_at"]
    wait_until(
        lambda: answer(installation, "/ready")["alerts"]["looked_at"] not in (None, looks), PATIENCE_SECONDS, "a look"
    )
    assert sorted(texts)[:2] == sorted(text for text in texts if text.startswith("Alert: ")), texts
    # An objective may burn slowly before it burns fast: a rise is told, and nothing is told twice.
    told = [text for text in texts if not text.startswith("More severe: ")]
    assert len(told) == 3 and len(texts) - len(told) <= 1, "each alert is told once"
    command = [
        sys.executable,
        "-m",
        "tollkeeper",
        "slo",
        "report",
        objective,
        "--data",
        str(installation.data),
        "--json",
    ]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert said == [stands | {"burn": said[0]["burn"]}]

    wait_until(lambda: batch_status(installation, key) == 429, PATIENCE_SECONDS, "batches are held back meanwhile")


def test_a_killed_analytics_process_goes_on_where_it_was_and_tells_nothing_again(
    installation: Installation, tenant: str, slack: tuple[str, list[str]]
) -> None:
    url, texts = slack
    channel, make = f"slack-{tenant}", installation.request
    make("POST", "/v1/alert-channels", {"id": channel, "kind": "slack", "address": url, "tenant": tenant})
    budget = {"level": "tenant", "period": "month", "amount_usd": "0.0001", "is_hard": False, "thresholds": [50]}
    make("POST", f"/v1/tenants/{tenant}/budgets", budget)
    rule = {"id": f"money-{tenant}", "kind": "budget_threshold", "tenant": tenant, "channels": [channel]}
    make("POST", "/v1/alert-rules", rule)
    ask_slowly(installation, key_of(installation, tenant))
    wait_until(lambda: len(texts) == 1, PATIENCE_SECONDS, "the threshold is told")

    killed = installation.kill("analytics")
    wait_until(lambda: installation.pid_of("analytics") != killed, PATIENCE_SECONDS, "it is started again")
    # Rules are looked at when the dead one's lease has ended, by a clock in tests/analytics/test_many_alerts.py.
    make("POST", f"/v1/alert-channels/{channel}/test")
    wait_until(lambda: texts[-1:] == ["Test: this channel works"], PATIENCE_SECONDS, "its address is still known")
    assert len(texts) == 2, "nothing is told again"
