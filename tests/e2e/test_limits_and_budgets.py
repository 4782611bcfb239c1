"""Limits and budgets down the whole road: set on the control plane, kept by the gateway, read back, told of."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openai
import pytest

from tests.e2e.installation import Installation, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

# scripted-1 costs 0.15 and 0.60 USD per million tokens: 3 prompt tokens and 40 of output are 24.45 millionths.
MESSAGE: Any = [{"role": "user", "content": "go [[script tokens=40]]"}]


@pytest.fixture
def tenant(installation: Installation) -> dict[str, Any]:
    """A tenant of its own, with a key."""
    name = f"tenant-{time.time_ns()}"
    installation.request("POST", "/v1/tenants", {"id": name, "name": name})
    key: Any = installation.request("POST", f"/v1/tenants/{name}/keys", {"name": "app"})
    wait_until(lambda: is_served(installation, key["secret"]), 3, "the gateway knows the key")
    return {"id": name, "key": key["secret"], "key_id": key["id"]}


@pytest.fixture
def told() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook: its URL, and what was posted to it."""
    posted: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", posted
    server.shutdown()
    server.server_close()


def chat(installation: Installation, key: str, **more: Any) -> Any:
    with openai.OpenAI(base_url=f"{installation.gateway_url}/v1", api_key=key, max_retries=0, timeout=20) as client:
        return client.chat.completions.with_raw_response.create(model="scripted-1", messages=MESSAGE, **more)


def until_known(installation: Installation, key: str, header: str) -> Any:
    """Wait until the gateway serves by the newest rules: a second at most on a machine that is not busy."""
    return wait_until(lambda: (found := chat(installation, key, max_tokens=1)).headers.get(header) and found, 3, header)


def test_a_limit_set_on_the_control_plane_holds_within_a_second(installation: Installation, tenant: dict[str, Any]):
    installation.request(
        "POST",
        f"/v1/tenants/{tenant['id']}/limits",
        {"level": "tenant", "metric": "requests", "window": "minute", "amount": 8},
    )
    answer = until_known(installation, tenant["key"], "x-ratelimit-limit-requests")
    assert answer.headers["x-ratelimit-limit-requests"] == "8"
    left = int(answer.headers["x-ratelimit-remaining-requests"])
    for _ in range(left):
        chat(installation, tenant["key"])
    with pytest.raises(openai.RateLimitError) as refused:
        chat(installation, tenant["key"])
    assert "8 of 8 requests used in a minute" in refused.value.message
    assert 0 < int(refused.value.response.headers["retry-after-ms"]) <= 62_000


def test_a_budget_is_spent_shown_told_of_and_survives_a_killed_gateway(
    installation: Installation, tenant: dict[str, Any], told: tuple[str, list[dict[str, Any]]]
):
    url, posted = told
    path = f"/v1/tenants/{tenant['id']}/budgets"
    made: Any = installation.request(
        "POST",
        path,
        {
            "level": "key",
            "subject": tenant["key_id"],
            "period": "day",
            "amount_usd": "0.00009",
            "thresholds": [50],
            "webhook_url": url,
        },
    )
    time.sleep(1)  # what a change needs to reach every gateway
    spent = [int(float(chat(installation, tenant["key"]).parse().usage.completion_tokens)) for _ in range(3)]
    assert spent == [40, 40, 40]

    def standing() -> Any:
        found: Any = installation.request("GET", f"{path}/{made['id']}")
        subjects = found["state"]["subjects"]
        return found if subjects and subjects[0]["spent"] == "0.00007335" else None

    wait_until(standing, 4, "the budget's standing on the control plane")
    [event] = wait_until(lambda: posted, 120, "the webhook's call")
    assert (event["type"], event["threshold_percent"], event["budget"]) == ("budget.threshold", 50, made["id"])

    before = installation.kill("gateway")
    wait_until(lambda: installation.pid_of("gateway") != before, 120, "another gateway")
    wait_until(lambda: is_served(installation, tenant["key"]), 120, "the gateway serves again")
    cut = chat(installation, tenant["key"])
    assert cut.parse().choices[0].finish_reason == "length", "16.65 millionths are left, which pay for 27 tokens"
    with pytest.raises(openai.RateLimitError) as refused:
        chat(installation, tenant["key"])
    assert refused.value.code == "insufficient_quota"
    assert len(posted) == 1, "a threshold is told once"


def is_served(installation: Installation, key: str) -> bool:
    try:
        with openai.OpenAI(base_url=f"{installation.gateway_url}/v1", api_key=key, max_retries=0) as client:
            return bool(client.models.list().data)
    except openai.APIError:
        return False
