"""What every process logs, and what none may."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import logging
from types import SimpleNamespace
from backends.processes.process import run_process

def run(settings):
    logging.getLogger("tollkeeper.test").info("ready")
    # As httpx words it for every call; a webhook's path is its secret.
    logging.getLogger("httpx").info("HTTP Request: POST https://hooks.slack.example/services/T0/B0/secret")

run_process("test", SimpleNamespace, run)
"""


def test_a_called_url_is_in_no_log() -> None:
    said = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    assert "tollkeeper.test: ready" in said.stderr and "secret" not in said.stderr


_REPEATS = """
import logging
from backends.processes.logs import LogSettings
from backends.processes.process import run_process

def run(settings):
    log = logging.getLogger("tollkeeper.test")
    for number in range(9):
        log.warning("target failed", extra={"target": "a", "number": number})
    log.warning("target failed", extra={"target": "b"})
    for number in range(9):
        log.info("served")
    try:
        raise ValueError("broken\\nin two lines")
    except ValueError:
        log.error("it \\"failed\\"", exc_info=True, extra={"level": "mine"})

raise SystemExit(run_process("test", LogSettings, run))
"""


def logged(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _REPEATS]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})


def test_json_logs_are_an_object_a_line() -> None:
    lines = [json.loads(line) for line in logged(TOLLKEEPER_LOG_FORMAT="json").stderr.splitlines()]
    first, failed = lines[0], next(line for line in lines if line["level"] == "error")
    assert list(first)[:4] == ["time", "level", "logger", "event"]
    assert (first["event"], first["target"], first["number"]) == ("target failed", "a", 0)
    assert failed["event"] == 'it "failed"' and "broken\nin two lines" in failed["exception"]


@pytest.mark.parametrize(("most", "written"), [("1", 1), ("8", 8), ("9", 9), ("10", 9), ("0", 9)])
def test_a_repeated_warning_is_written_a_few_times_and_then_counted(most: str, written: int) -> None:
    lines = [
        json.loads(line)
        for line in logged(TOLLKEEPER_LOG_FORMAT="json", TOLLKEEPER_LOG_REPEATS=most).stderr.splitlines()
    ]
    of_a = [line for line in lines if line.get("target") == "a"]
    assert len([line for line in of_a if "repeated" not in line]) == written
    assert [line["repeated"] for line in of_a if "repeated" in line] == ([9 - written] if written < 9 else [])
    assert len([line for line in lines if line.get("target") == "b"]) == 1, "another target's failure is another"
    assert len([line for line in lines if line["event"] == "served"]) == 9, "only failures are summarised"


def test_the_level_says_what_is_written() -> None:
    said = logged(TOLLKEEPER_LOG_LEVEL="error").stderr
    assert "target failed" not in said and 'ERROR tollkeeper.test: it "failed"' in said


def test_under_systemd_each_line_begins_with_its_severity(tmp_path: Path) -> None:
    with (tmp_path / "journal").open("w") as file:
        found = os.fstat(file.fileno())
        environment = {**os.environ, "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        subprocess.run([sys.executable, "-c", _REPEATS], stderr=file, env=environment, timeout=60, check=True)
    lines = (tmp_path / "journal").read_text().splitlines()
    assert {line[:3] for line in lines} == {"<3>", "<4>", "<6>"}
    assert any(line.startswith("<3>ValueError: broken") for line in lines), "a traceback's lines as well"


MODULES = ["gateway", "gateway.control", "collector", "analytics", "dashboard", "migrations"]
MODULES += ["backends.store", "backends.engine", "backends.providers", "backends.tool_host"]


@pytest.mark.parametrize("module", MODULES)
def test_a_misspelt_setting_stops_every_process_with_the_nearest_name(module: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TOLLKEEPER_DATA": str(tmp_path / "data"), "TOLLKEEPER_REDIS_ULR": "redis://127.0.0.1"},
    )
    assert done.returncode == 2
    assert "TOLLKEEPER_REDIS_ULR is not a setting; did you mean TOLLKEEPER_REDIS_URL?" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists(), "nothing is made before"


def test_a_providers_key_may_have_any_name() -> None:
    assert logged(TOLLKEEPER_PROVIDER_OF_MINE="a").returncode == 0


def test_variables_that_kubernetes_makes_of_services_are_explained() -> None:
    done = logged(TOLLKEEPER_GATEWAY_SERVICE_HOST="10.0.0.1")
    assert done.returncode == 2 and "enableServiceLinks: false" in done.stderr
