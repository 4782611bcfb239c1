"""`tollkeeper slo` and `tollkeeper alerts` against a running control plane: what people type and what they read."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tollkeeper.cli import app
from tollkeeper.control_client import ControlClient, ControlPlaneRefused
from tollkeeper.demo_slos import end_slos, make_slos

SLO = ("slo", "create", "chat-ttft", "--indicator", "ttft", "--ttft-ms", "500", "--target", "99.9")
CHANNEL = ("alerts", "channels", "create", "ops", "--kind", "slack", "--address", "https://hooks.slack.com/services/x")


def run(data: Path, *words: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, [*words, "--data", str(data)])
    assert done.exit_code == status, done.output
    return done.output


def test_an_objective_is_created_listed_and_deleted(data: Path) -> None:
    said = run(data, *SLO, "--hook", "shed_batch")
    assert said.strip() == "objective chat-ttft created: 99.9 % ttft (ttft <= 500 ms) in 28 days"
    (row,) = json.loads(run(data, "slo", "list", "--json"))
    assert (row["target_percent"], row["hooks"]) == ("99.9", ["shed_batch"])
    assert "all requests" in run(data, "slo", "list")
    run(data, "slo", "delete", "chat-ttft")
    assert "no objectives" in run(data, "slo", "list")


def test_what_cannot_be_promised_is_one_line_that_says_why(refusing_data: Path) -> None:
    for words, said in (
        (("--target", "100"), "no error budget"),
        (("--target", "0"), "has no meaning"),
        (("--window-days", "120"), "kept for 90 days"),
        (("--ttft-ms", "510"), "the nearest are 500 and 600"),
    ):
        output = run(refusing_data, *SLO, *words, status=2)
        assert said in output.replace("\n", " ") and "Traceback" not in output


def test_a_yaml_file_is_applied_again_and_again(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "objectives.yaml"
    file.write_text(
        "objectives:\n"
        "  - {id: up, indicator: availability, target_percent: 99.9}\n"
        "  - {id: good, indicator: goodput, target_percent: 95, thresholds_ms: {ttft: 500, inter_token: 2.5}}\n"
    )
    for _ in range(2):
        assert run(data, "slo", "apply", str(file)).count("set: ") == 2
    rows: list[dict[str, Any]] = json.loads(run(data, "slo", "list", "--json"))
    assert [(row["id"], row["target_percent"]) for row in rows] == [("good", "95"), ("up", "99.9")]
    assert rows[0]["thresholds_ms"] == {"ttft": "500", "inter_token": "2.5"}
    for text, said in (("- 1", "must hold `objectives:`"), ("a: [", "is not YAML")):
        file.write_text(text)
        assert said in run(data, "slo", "apply", str(file), status=2).replace("\n", " ")
    assert "cannot be read" in run(data, "slo", "apply", str(tmp_path / "none"), status=2).replace("\n", " ")


def test_rules_channels_and_silences_are_kept(data: Path) -> None:
    assert "tollkeeper alerts test ops" in run(data, *CHANNEL)
    rule = ("alerts", "rules", "create", "pace", "--kind", "budget_forecast", "--channel", "ops")
    assert json.loads(run(data, *rule, "--set", "at_percent=90", "--json"))["settings"] == {"at_percent": 90}
    for wrong in ("at_percent", "at_percent=nan", "at_percent=inf"):
        assert "is not NAME=" in run(data, *rule, "--set", wrong, status=2)
    run(data, "alerts", "silences", "create", "--rule", "pace", "--hours", "2", "--comment", "known")
    assert "known" in run(data, "alerts", "silences", "list")
    assert "hooks.slack.com/..." in run(data, "alerts", "channels", "list")
    assert "at_percent=90" in run(data, "alerts", "rules", "list")
    assert "delete the rule first" in run(data, "alerts", "channels", "delete", "ops", status=2).replace("\n", " ")
    run(data, "alerts", "rules", "delete", "pace")
    run(data, "alerts", "channels", "delete", "ops")


def test_a_test_that_nobody_sends_says_so(data: Path) -> None:
    run(data, *CHANNEL)
    said = run(data, "alerts", "test", "ops", "--wait-seconds", "0", status=1)
    assert said.replace("\n", " ").strip() == ("ops: waiting; does the analytics process run? (`tollkeeper up`)")
    assert "test" in run(data, "alerts", "deliveries")


def test_what_the_demonstration_promises_is_gone_when_it_ends(data: Path) -> None:
    with ControlClient.of_installation(data, "") as control:
        made = make_slos(control, "demo", "scripted-1", "demo-1", "https://hooks.slack.com/services/x")
        assert len(control.get_all("/v1/alert-rules")) == 2 and len(control.get_all("/v1/slos")) == 1
        end_slos(control, made)
        for path in ("/v1/alert-rules", "/v1/slos", "/v1/alert-channels", "/v1/tenants/demo/budgets"):
            assert control.get_all(path) == [], path


def test_promises_that_are_refused_half_way_leave_nothing_behind(data: Path) -> None:
    with ControlClient.of_installation(data, "") as control:
        control.post("/v1/slos", {"id": "demo-1-ttft", "indicator": "availability", "target_percent": "99"})
        with pytest.raises(ControlPlaneRefused, match="exists already"):
            make_slos(control, "demo", "scripted-1", "demo-1", "https://hooks.slack.com/services/x")
        for path in ("/v1/alert-rules", "/v1/alert-channels", "/v1/tenants/demo/budgets"):
            assert control.get_all(path) == [], path
