"""The wheel, installed into an empty environment and started in an empty directory, is the whole of Tollkeeper."""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from backends.secrets.secret_files import SecretFiles
from tests.ports import find_free_ports
from tests.steady_time import poll_within

pytestmark = [pytest.mark.e2e, pytest.mark.drill]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 180.0
PORTS = 9
PIP_INSTALL = ("install", "--no-index", "--disable-pip-version-check", "--quiet")
INSTALLERS = ("pip", "setuptools", "wheel", "_distutils_hack")
COMPILED = """
import importlib, json
from backends.processes.compiled import use_compiled
from tollkeeper.compile import HOT
found = use_compiled()
names = [name.replace("/", ".") for name in HOT]
files = {name: importlib.import_module(name).__file__ for name in names}
print(json.dumps({"state": found.state, "reason": found.reason, "files": files}))
"""


def outside() -> dict[str, str]:
    """The environment of someone who has no checkout."""
    mine = ("TOLLKEEPER_", "PYTHON", "VIRTUAL_ENV", "COVERAGE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(mine)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and nothing else of ours. Other packages are this one's, so nothing is downloaded:
    pip takes them if they are the versions that the wheel asks for."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, symlinks=True)
    shared = home / "shared" / "site-packages"
    shared.mkdir(parents=True)
    for found in Path(sysconfig.get_path("purelib")).iterdir():
        is_ours = found.name.startswith(("tollkeeper", "_editable", "__editable__"))
        if not is_ours and found.suffix != ".pth" and found.name.partition("-")[0] not in INSTALLERS:
            (shared / found.name).symlink_to(found)
    (site,) = home.glob("lib/python3*/site-packages")
    (site / "shared.pth").write_text(f"{shared}\n")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(home / "bin/python"), *PIP_INSTALL, str(wheel)],
        capture_output=True,
        text=True,
        env=outside(),
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return home / "bin" / "python"


def run(python: Path, *arguments: str, cwd: Path) -> str:
    done = subprocess.run([python, "-P", *arguments], cwd=cwd, capture_output=True, text=True, env=outside())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_every_package_that_a_plain_installation_brings_has_an_exact_version(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        stated = HeaderParser().parsestr(archive.read(name).decode()).get_all("Requires-Dist") or []
    requirements = [Requirement(each) for each in stated]
    plain = [each for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})]
    exact = {each.name for each in plain if str(each.specifier).startswith("==")}
    assert {each.name.lower().replace("_", "-") for each in plain} <= exact
    assert {"starlette", "uvicorn", "chdb", "typer", "streamlit", "pydantic-core"} <= exact, "what they bring in, too"
    assert "torch" not in exact, "gigabytes that a plain installation does without"


@pytest.mark.skipif(shutil.which("gcc") is None and shutil.which("cc") is None, reason="needs a C compiler")
def test_every_hot_module_of_the_installed_wheel_is_compiled(wheel: Path, python: Path, tmp_path: Path) -> None:
    told = json.loads(run(python, "-c", COMPILED, cwd=tmp_path))
    assert told["state"] == "compiled", told["reason"]
    interpreted = {name: file for name, file in told["files"].items() if not file.endswith(".so")}
    assert interpreted == {}
    assert all(str(python.parents[1]) in file for file in told["files"].values()), "of the wheel, not of a checkout"
    tags = wheel.stem.split("-")[2:]
    assert tags[0] == tags[1] == f"cp{sys.version_info.major}{sys.version_info.minor}"


def test_the_installed_wheel_lacks_nothing_that_a_checkout_has(python: Path, tmp_path: Path) -> None:
    files = "from tollkeeper.packaged_files import *; print([p for p in PACKAGED if not packaged_file(p).exists()])"
    assert run(python, "-c", files, cwd=tmp_path).strip() == "[]"
    trace = "from tollkeeper.demonstration import TRACE; print(TRACE.is_file())"
    assert run(python, "-c", trace, cwd=tmp_path).strip() == "True"
    report = json.loads(run(python, "-m", "tollkeeper", "doctor", "--json", cwd=tmp_path))
    assert [check for check in report["checks"] if check["status"] == "fail"] == []
    (packages,) = [check for check in report["checks"] if check["name"] == "packages"]
    assert packages["status"] == "ok", packages


@pytest.fixture
def demo(python: Path, tmp_path: Path) -> Iterator[int]:
    """`tollkeeper demo` in an empty directory; the gateway's port."""
    port_base = find_free_ports(PORTS)[0]
    log = tmp_path.parent / f"{tmp_path.name}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [python.with_name("tollkeeper"), "demo", "--port-base", str(port_base), "--no-open", "--seconds", "1"],
            cwd=tmp_path,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**outside(), "COLUMNS": "200"},
        )
    try:
        poll_within(lambda: process.poll() is not None or "Tollkeeper is ready" in log.read_text(), PATIENCE_SECONDS)
        assert "Tollkeeper is ready" in log.read_text(), log.read_text()[-4000:]
        yield port_base
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_the_installed_wheel_serves_in_an_empty_directory(demo: int, tmp_path: Path) -> None:
    key = SecretFiles(tmp_path / ".tollkeeper" / "secrets").get("demo_key")
    body = {"model": "scripted-1", "messages": [{"role": "user", "content": "Good morning"}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{demo}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        answer = json.loads(reply.read())
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] > 0
    with urllib.request.urlopen(f"http://127.0.0.1:{demo + 3}/", timeout=60) as page:
        assert page.status == 200, "the dashboard's pages come with the wheel"
