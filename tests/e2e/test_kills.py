"""kill -9 of the collector or the store under load: the supervisor restarts it and every acknowledged request is
in the store exactly once."""

import asyncio
import time
from typing import Any

import httpx
import pytest

from tests.e2e.installation import Installation, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

REQUESTS = 200
AT_ONCE = 20
WITHIN_SECONDS = 10

COUNTS = """
SELECT count() AS rows, uniqExact(request_id) AS requests, sum(tokens_output_text) AS tokens
FROM requests WHERE run_id = {run_id:String} AND started_at > now() - INTERVAL 1 HOUR
"""
ROLLUP = """
SELECT sum(requests) AS requests, sum(output_tokens) AS tokens FROM requests_minute
WHERE tenant = {tenant:String} AND bucket > now() - INTERVAL 1 HOUR
"""


async def _load(installation: Installation, key: str, run_id: str, kill: str) -> int:
    """Send 200 requests, 20 at a time, and kill a process half-way. Gives how many were acknowledged."""
    acknowledged = 0
    killed = False
    headers = {"authorization": f"Bearer {key}", "x-tollkeeper-run-id": run_id}
    body = {
        "model": "scripted-1",
        "stream": True,
        "messages": [{"role": "user", "content": "x [[script tokens=10 gap_ms=5]]"}],
    }
    queue = iter(range(REQUESTS))

    async def worker(client: httpx.AsyncClient) -> None:
        nonlocal acknowledged, killed
        for number in queue:
            if number >= REQUESTS // 2 and not killed:
                killed = True
                installation.kill(kill)
            reply = await client.post(f"{installation.gateway_url}/v1/chat/completions", json=body, headers=headers)
            assert reply.status_code == 200
            assert reply.text.endswith("data: [DONE]\n\n")
            acknowledged += 1

    async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
        await asyncio.gather(*(worker(client) for _ in range(AT_ONCE)))
    return acknowledged


@pytest.mark.parametrize("victim", ["collector", "store"])
def test_every_acknowledged_request_is_stored_exactly_once(installation: Installation, victim: str):
    tenant, run_id = f"kill-{victim}", f"kill-{victim}-{time.time_ns()}"
    installation.request("POST", "/v1/tenants", {"id": tenant, "name": tenant})
    made = installation.request("POST", f"/v1/tenants/{tenant}/keys", {"name": "load"})
    assert isinstance(made, dict)
    headers = {"authorization": f"Bearer {made['secret']}"}
    wait_until(
        lambda: httpx.get(f"{installation.gateway_url}/v1/models", headers=headers, trust_env=False).is_success,
        2.0,
        "the new key",
    )
    old_pid = installation.pid_of(victim)

    acknowledged = asyncio.run(_load(installation, made["secret"], run_id, victim))

    assert acknowledged == REQUESTS
    store = installation.store()

    def counts() -> dict[str, Any]:
        row: dict[str, Any] = dict(store.query(COUNTS, {"run_id": run_id})[0])
        return row if row["requests"] >= REQUESTS else {}

    row = wait_until(counts, WITHIN_SECONDS, f"all rows after the {victim} was killed")
    assert installation.pid_of(victim) != old_pid, "the supervisor did not restart it"
    # A second copy would come with a resent batch: give it the time to.
    time.sleep(2.0)
    (row,) = store.query(COUNTS, {"run_id": run_id})
    assert row == {"rows": REQUESTS, "requests": REQUESTS, "tokens": REQUESTS * 10}
    (rollup,) = store.query(ROLLUP, {"tenant": tenant})
    assert rollup == {"requests": REQUESTS, "tokens": REQUESTS * 10}
