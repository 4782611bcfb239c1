"""From the openai SDK to the dashboard: one installation, real processes, real clients."""

import json
import re
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.e2e.installation import UNKNOWN_KEY, Installation, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

ROOT = Path(__file__).parents[2]

ROW = """
SELECT request_id, tenant, model, outcome, stream, ttft_ns, length(gaps) AS gap_count, duration_ns,
       tokens_input_text, tokens_cache_read_text, tokens_output_text, count_method, cost_usd, price_version
FROM requests WHERE run_id = {run_id:String} AND started_at > now() - INTERVAL 1 HOUR
"""


def client_of(installation: Installation, key: str | None = None) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{installation.gateway_url}/v1", api_key=key or installation.key, max_retries=0, timeout=20
    )


def test_up_prints_the_key_when_it_is_ready(installation: Installation):
    assert installation.key in installation.output()


def test_a_streamed_chat_is_a_priced_row_within_two_seconds(installation: Installation):
    run_id = f"stream-{time.time_ns()}"
    with client_of(installation) as client:
        stream = client.chat.completions.create(
            model="scripted-1",
            messages=[{"role": "user", "content": "three words here [[script tokens=40 gap_ms=10 first_ms=50]]"}],
            stream=True,
            stream_options={"include_usage": True},
            extra_headers={"x-tollkeeper-run-id": run_id},
        )
        text, usage = "", None
        for chunk in stream:
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
            usage = chunk.usage or usage
    store = installation.store()
    rows = wait_until(lambda: store.query(ROW, {"run_id": run_id}), 2.0, "the row of an acknowledged request")

    assert usage is not None and usage.completion_tokens == 40
    assert len(text.split()) == 40
    assert len(rows) == 1
    row: dict[str, Any] = dict(rows[0])
    assert row["tenant"] == "demo" and row["model"] == "scripted-1"
    assert row["outcome"] == "ok" and row["stream"]
    assert row["tokens_input_text"] == usage.prompt_tokens
    assert row["tokens_output_text"] == 40
    assert row["count_method"] == "exact"
    assert row["gap_count"] == 39
    assert 50_000_000 <= row["ttft_ns"] < row["duration_ns"]
    expected = (Decimal("0.15") * usage.prompt_tokens + Decimal("0.60") * 40) / 1_000_000
    assert row["cost_usd"] == expected


def test_a_revoked_key_is_refused_within_a_second(installation: Installation):
    made = installation.request("POST", "/v1/tenants/demo/keys", {"name": "to be revoked"})
    assert isinstance(made, dict)
    with client_of(installation, made["secret"]) as client:
        wait_until(lambda: _is_accepted(client), 1.0, "a new key to be accepted")
        installation.request("DELETE", f"/v1/tenants/demo/keys/{made['id']}")
        wait_until(lambda: not _is_accepted(client), 1.0, "a revoked key to be refused")


def _is_accepted(client: openai.OpenAI) -> bool:
    try:
        client.models.list()
    except UNKNOWN_KEY:
        return False
    return True


def test_the_readme_example_works_as_pasted(installation: Installation):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    example = next(block for block in blocks if "OpenAI(" in block)
    environment = {
        "OPENAI_BASE_URL": f"{installation.gateway_url}/v1",
        "OPENAI_API_KEY": installation.key,
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [sys.executable, "-c", example], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) >= 3, "the built-in model said next to nothing"


def test_the_command_line_reads_what_the_control_plane_holds(installation: Installation):
    listed = subprocess.run(
        [sys.executable, "-m", "tollkeeper", "tenants", "list", "--json", "--data", str(installation.data)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=ROOT,
    )
    assert "demo" in [tenant["id"] for tenant in json.loads(listed.stdout)]


def test_no_log_line_holds_a_key_or_a_prompt(installation: Installation):
    secret_prompt = "a very private sentence"
    with client_of(installation) as client:
        client.chat.completions.create(model="scripted-1", messages=[{"role": "user", "content": secret_prompt}])
    log = installation.output()
    assert secret_prompt not in log
    assert installation.admin_token not in log
    # The welcome prints the demonstration's key on purpose; no process's own line may.
    lines = [line for line in log.splitlines() if " | " in line]
    assert not [line for line in lines if installation.key in line]
