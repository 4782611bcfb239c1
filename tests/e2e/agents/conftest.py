"""Coding agents and SDKs as their users install them, in front of an installation with a scripted model."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.agents.scripted_model import ScriptedModel
from tests.e2e.installation import Installation, wait_until

HERE = Path(__file__).parent
MODEL = "agent-model"
INSTALL_SECONDS, RUN_SECONDS = 600, 120


@dataclass(frozen=True)
class Agents:
    """Where the programs are, and the gateway they talk to."""

    folder: Path
    installation: Installation
    model: ScriptedModel
    home: Path

    def run(self, *command: str, **environment: str) -> str:
        """Run a program to its end in an empty home, and return what it printed. Fail if it fails."""
        work = self.home / "work"
        work.mkdir(exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        gateway = {"GATEWAY_URL": self.installation.gateway_url, "GATEWAY_KEY": self.installation.key}
        done = subprocess.run(
            command,
            cwd=work,
            env={**kept, "HOME": str(self.home), **gateway, "GATEWAY_MODEL": MODEL, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
        )
        assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def program(self, name: str) -> str:
        return str(self.folder / "node_modules" / ".bin" / name)

    def script(self, name: str) -> str:
        """Return a script's copy beside the packages it imports."""
        return str(shutil.copy(HERE / name, self.folder / name))


@pytest.fixture(scope="session")
def agents_folder(pytestconfig: pytest.Config) -> Path:
    """Install what package.json names, once for each state of it, beside other temporary files: under `make agents` all
    of it, else without the largest programs, which only its tests run.
    """
    if shutil.which("npm") is None:
        pytest.skip("npm is missing; it installs the agents")
    wanted = (HERE / "package.json").read_bytes()
    has_all = _is_for_agents(pytestconfig)
    kind = "agents" if has_all else "sdks"
    folder = Path(tempfile.gettempdir()) / f"tollkeeper-{kind}-{os.getuid()}-{hashlib.sha256(wanted).hexdigest()[:12]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            (folder / "package.json").write_bytes(wanted)
            left_out = [] if has_all else ["--omit=dev"]
            _npm(folder, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *left_out)
            # They put the program for this machine in place; npm asks a person before it runs such scripts.
            _npm(folder, "node", "node_modules/@anthropic-ai/claude-code/install.cjs")
            if has_all:
                _npm(folder, "node", "node_modules/opencode-ai/postinstall.mjs")
            (folder / "installed").touch()
    return folder


def _npm(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-2000:]}"


def wait_until_served(installation: Installation, model: str) -> None:
    asked = urllib.request.Request(
        f"{installation.gateway_url}/v1/models", headers={"authorization": f"Bearer {installation.key}"}
    )
    wait_until(lambda: model in urllib.request.urlopen(asked).read().decode(), 120, f"{model} is served")


@pytest.fixture(scope="package")
def served_model(installation: Installation) -> Iterator[ScriptedModel]:
    model = ScriptedModel()
    installation.request("POST", "/v1/pools", {"id": "agents"})
    target = {"id": "scripted", "kind": "openai_http", "url": model.url}
    installation.request("POST", "/v1/pools/agents/targets", target)
    installation.request("POST", "/v1/models", {"id": MODEL, "pool": "agents"})
    wait_until_served(installation, MODEL)
    yield model
    model.close()


@pytest.fixture
def agents(agents_folder: Path, installation: Installation, served_model: ScriptedModel, tmp_path: Path) -> Agents:
    served_model.bodies.clear()
    return Agents(agents_folder, installation, served_model, tmp_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `make agents` runs."""
    if _is_for_agents(config):
        return
    left_out = [item for item in items if item.get_closest_marker("agents")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_for_agents(config: pytest.Config) -> bool:
    return "agents" in (config.option.markexpr or "")
