"""Prometheus' rules: promtool accepts and tests them, their metrics are documented, every alert has a runbook."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy" / "prometheus"
GROUPS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
RULES: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


@pytest.mark.service
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (apt-get install prometheus)")
@pytest.mark.parametrize("arguments", [("check", "rules", "rules.yml"), ("test", "rules", "rules_test.yml")])
def test_promtool_accepts_the_rules_and_their_tests_pass(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_metrics_of_rules_are_documented_or_recorded() -> None:
    documented = (ROOT / "docs" / "metrics.md").read_text()
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    for rule in RULES:
        asked = set(re.findall(r"[a-z_:]*(?:tollkeeper|gen_ai_server)_[a-z0-9_:]+", rule["expr"]))
        assert asked or rule["expr"].startswith("up{"), rule
        for name in asked - recorded:
            plain = _SUFFIX.sub("", name)
            # Most of the gateway's stand there without their prefix.
            assert f"`{plain}`" in documented or f"`{plain.removeprefix('tollkeeper_')}`" in documented, name


def test_every_alert_has_a_section_in_the_runbook_and_every_section_an_alert() -> None:
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbooks" / "installation.md").read_text(), re.MULTILINE)
    alerts = [rule for rule in RULES if "alert" in rule]
    assert [rule["alert"] for rule in alerts] == sections
    for rule in alerts:
        assert rule["annotations"]["runbook"] == f"docs/runbooks/installation.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning")
