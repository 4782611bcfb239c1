"""A store that hangs: clients of the gateway do not notice, and everything is there once it goes on."""

import asyncio
import contextlib
import os
import signal
import time

import httpx
import pytest

from tests.e2e.installation import Installation, wait_until

pytestmark = pytest.mark.e2e

REQUESTS = 60
AT_ONCE = 6
ANSWER_SECONDS = 10.0  # the store answers nothing for as long as requests are sent: whoever waited for it would wait on
COUNTS = """
SELECT count() AS rows, uniqExact(request_id) AS requests, sum(tokens_output_text) AS tokens
FROM requests WHERE run_id = {run_id:String} AND started_at > now() - INTERVAL 1 HOUR
"""


async def ask(installation: Installation, run_id: str) -> int:
    headers = {"authorization": f"Bearer {installation.key}", "x-tollkeeper-run-id": run_id}
    body = {"model": "scripted-1", "messages": [{"role": "user", "content": "x [[script tokens=5 gap_ms=1]]"}]}
    answered = 0
    queue = iter(range(REQUESTS))

    async def worker(client: httpx.AsyncClient) -> None:
        nonlocal answered
        for _ in queue:
            reply = await client.post(f"{installation.gateway_url}/v1/chat/completions", json=body, headers=headers)
            assert reply.status_code == 200
            answered += 1

    async with httpx.AsyncClient(timeout=ANSWER_SECONDS, trust_env=False) as client:
        await asyncio.gather(*(worker(client) for _ in range(AT_ONCE)))
    return answered


def test_requests_are_answered_while_the_store_hangs_and_are_all_in_it_afterwards(installation: Installation):
    run_id, store_pid = f"away-{time.time_ns()}", installation.pid_of("store")
    os.kill(store_pid, signal.SIGSTOP)
    try:
        assert asyncio.run(ask(installation, run_id)) == REQUESTS
    finally:
        with contextlib.suppress(ProcessLookupError):  # the supervisor may have ended what hangs
            os.kill(store_pid, signal.SIGCONT)
    store = installation.store()

    def is_all_there() -> bool:
        return bool(store.query(COUNTS, {"run_id": run_id})[0]["requests"] == REQUESTS)

    wait_until(is_all_there, 60.0, "all rows after the store went on")
    (row,) = store.query(COUNTS, {"run_id": run_id})
    assert row == {"rows": REQUESTS, "requests": REQUESTS, "tokens": REQUESTS * 5}
    store.close()
