"""`tollkeeper rollout` against a real control plane."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from typer.testing import CliRunner, Result

from backends.store.columns import arrow_batch
from contracts.recording.names import REQUESTS
from tests.analytics.cost.records import request
from tollkeeper.cli import app
from tollkeeper.control_client import ControlClient

DEMO = "scripted-1"


@pytest.fixture
def run(data: Path):
    """Run a command on an installation that has a route and a second model."""
    with ControlClient.of_installation(data, "") as client:
        client.post("/v1/pools", {"id": "new"})
        client.post("/v1/pools/new/targets", {"id": "one", "kind": "scripted"})
        client.post("/v1/models", {"id": "new", "pool": "new"})
        client.post("/v1/routes", {"id": "assistant", "rules": {"choose": [{"model": DEMO}]}})

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["rollout", *arguments, "--data", str(data)])

    return invoke


def test_a_rollout_is_begun_led_and_ended_by_commands(run, tmp_path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"steps": [{"percent": 2}, {"percent": 50}], "guards": {"max_cost_ratio": None}}))
    about = ("--route", "assistant", "--incumbent", DEMO, "--candidate", "new")
    made = run("create", "try", str(rules), *about)
    assert (made.exit_code, made.stdout.strip()) == (0, f"rollout try created: new has 2 % of {DEMO} on assistant")
    assert "50 %" in run("advance", "try").stdout
    assert run("pause", "try", "--reason", "lunch").exit_code == 0
    [listed] = json.loads(run("list", "--json").stdout)
    assert (listed["state"], listed["reason"], listed["rules"]["guards"]["max_cost_ratio"]) == ("paused", "lunch", None)
    shown = run("show", "try")
    assert shown.exit_code == 0 and "try: paused at 50 % (lunch)" in shown.stdout
    assert run("resume", "try").exit_code == 0 and run("abort", "try").exit_code == 0
    assert json.loads(run("delete", "try", "--json").stdout) == {"id": "try", "deleted": True}
    again = run("create", "next", *about, "--json")
    assert json.loads(again.stdout)["percent"] == 1.0
    assert "promoted" in run("promote", "next").stdout


def test_a_report_compares_what_the_store_has_of_both_arms(store: Any, tmp_path: Path) -> None:
    data, name, now = tmp_path / "data", f"try-{uuid4().hex[:8]}", datetime.now(UTC)
    shutil.copytree(store.data / "secrets", data / "secrets")
    records = [
        request(now, request_id=uuid4().bytes, rollout=name, arm=arm, model=model, ttft_ns=ttft_ms * 10**6)
        for arm, model, ttft_ms in [("incumbent", "old", 50)] * 4 + [("candidate", "new", 100)]
    ]
    writer = store.client("writer")
    writer.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=name)
    writer.close()
    place = ["rollout", "report", name, "--data", str(data), "--store-url", store.url]
    told = json.loads(CliRunner().invoke(app, [*place, "--json"]).stdout)
    assert (told["incumbent_requests"], told["candidate_requests"], told["copies"]) == (4, 1, 0)
    [times] = [line for line in told["lines"] if (line["measure"], line["of"]) == ("ttft (ms)", "arms")]
    assert (times["incumbent"], times["candidate"], times["comparison"]["value"]) == (50.0, 100.0, 2.0)
    assert times["comparison"]["low"] is None, "one request says nothing of how far they lie apart"
    said = CliRunner().invoke(app, place)
    assert said.exit_code == 0 and "4 requests of the incumbent, 1 of the" in said.stdout, said.output


def test_what_is_refused_is_one_line_and_status_2(run, tmp_path) -> None:
    about = ("--route", "assistant", "--incumbent", DEMO, "--candidate", "new")
    odd = tmp_path / "odd.yaml"
    odd.write_text("- 1")
    for arguments, words in (
        (("create", "try", "--route", "gone", "--incumbent", DEMO, "--candidate", "new"), "which does not exist"),
        (("create", "try", str(tmp_path / "gone.yaml"), *about), "cannot be read"),
        (("create", "try", str(odd), *about), "must hold fields with values"),
        (("promote", "gone"), "rollout 'gone' does not exist"),
    ):
        done = run(*arguments)
        assert (done.exit_code, words in done.output.replace("\n", " ")) == (2, True), done.output
