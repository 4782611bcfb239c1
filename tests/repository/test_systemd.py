"""The units of systemd: they run our processes, are hardened, and give them the time to stop that they need."""

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
EXPOSURE_AT_MOST = 30  # of 100, as systemd-analyze judges; a unit without hardening has 96

Settings = Mapping[str, type[BaseSettings]]


def option(unit: Path, name: str) -> str:
    found = re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)
    assert len(found) == 1, f"{unit.name}: {name}"
    return str(found[0])


def module_of(unit: Path) -> str:
    return option(unit, "ExecStart").rpartition(" ")[2]


def test_every_process_has_a_unit(settings_classes: Settings) -> None:
    # These run in somebody else's cluster, beside the Envoy that asks and the vLLM that is metered.
    beside_others = {"gateway.routing.picker", "gateway.observability.sidecar"}
    assert {module_of(unit) for unit in UNITS} == set(settings_classes) - beside_others


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_runs_a_module_with_the_settings_and_ends_in_time(unit: Path, settings_classes: Settings) -> None:
    assert importlib.util.find_spec(module_of(unit)) is not None
    assert option(unit, "EnvironmentFile") == "-/etc/tollkeeper/tollkeeper.env"
    fields = settings_classes[module_of(unit)].model_fields
    drains = [field.default for name, field in fields.items() if name.endswith("drain_seconds")]
    assert float(option(unit, "TimeoutStopSec").removesuffix("s")) >= max(drains, default=0) + 10
    for line in re.findall(r"^(?:Wants|After)=(.*)$", unit.read_text(), re.MULTILINE):
        for name in line.split():
            assert not name.startswith("tollkeeper") or (FOLDER / name).is_file(), name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (apt-get install systemd)")
def test_systemd_finds_no_fault_and_little_exposure(tmp_path: Path) -> None:
    for path in FOLDER.iterdir():
        text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", path.read_text(), flags=re.MULTILINE)
        (tmp_path / path.name).write_text(text.replace("User=tollkeeper", "User=daemon"))
    files = [str(path) for path in sorted(tmp_path.iterdir())]
    command = ["systemd-analyze", "verify", "--man=no", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    faults = [line for line in done.stderr.splitlines() if "tollkeeper" in line]
    assert faults == []
    judged = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_AT_MOST}"]
    for unit in sorted(tmp_path.glob("*.service")):
        done = subprocess.run([*judged, str(unit)], capture_output=True, text=True)
        overall = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr
        assert done.returncode == 0, f"{unit.name}: {overall}"
