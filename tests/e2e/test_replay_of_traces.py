"""A real trace through a real installation: what the clients were told is what the store holds."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.installation import Installation, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.drill]

ROOT = Path(__file__).parents[2]
AZURE = ROOT / "bench" / "traces" / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv"

SUMS = """
SELECT count() AS requests, sum(tokens_output_text) AS output,
       uniqExact(tenant) AS tenants, countIf(team = '') AS teamless
FROM requests WHERE run_id = {run_id:String} AND started_at > now() - INTERVAL 1 HOUR
"""


def command(installation: Installation, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tollkeeper", *arguments, "--data", str(installation.data)]


def test_a_replay_s_tokens_are_the_store_s(installation: Installation):
    done = subprocess.run(
        command(
            installation, "replay", str(AZURE), "--limit", "60", "--speed", "20", "--model", "scripted-1", "--json"
        ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["requests"], summary["ok"], summary["errors"]) == (60, 60, 0)
    assert summary["tokens_out"] == summary["tokens_out_wanted"] > 1000
    assert summary["stored_match"] is True
    (row,) = installation.store().query(SUMS, {"run_id": summary["run_id"]})
    assert row == {"requests": 60, "output": summary["tokens_out"], "tenants": 3, "teamless": 0}
    keys = installation.request("GET", "/v1/tenants/acme/keys")
    assert isinstance(keys, dict) and all(key["revoked_at"] for key in keys["data"])


def test_ctrl_c_ends_a_replay_with_its_summary_and_without_its_keys(installation: Installation):
    run_id = f"interrupted-{time.time_ns()}"
    arguments = ("replay", str(AZURE), "--model", "scripted-1", "--json", "--run-id", run_id)
    process = subprocess.Popen(
        command(installation, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    wait_until(lambda: _requests(installation, run_id), 120, "the first request of the trace")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and errors == ""
    summary = json.loads(output)
    assert summary["is_interrupted"] and summary["errors"] == 0 and summary["stored_match"]
    keys = installation.request("GET", "/v1/tenants/acme/keys")
    assert isinstance(keys, dict)
    assert [key["revoked_at"] is not None for key in keys["data"] if run_id in key["name"]] == [True]


def _requests(installation: Installation, run_id: str) -> object:
    return installation.store().query(SUMS, {"run_id": run_id})[0]["requests"]
