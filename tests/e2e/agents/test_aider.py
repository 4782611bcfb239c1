"""aider edits a file through the gateway, as it is installed from the package index. `make agents` runs it."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.e2e.agents.conftest import INSTALL_SECONDS, Agents, wait_until_served
from tests.steady_time import poll_within

pytestmark = [pytest.mark.e2e, pytest.mark.agents]

AIDER = "aider-chat==0.86.2"
# A model that aider does not know rewrites whole files: a name, and the text between fences.
TASK = "Make the colour blue. <answer>colour.txt\n```\nblue\n```\n</answer>"
OFFLINE = (
    "--no-check-update",
    "--no-analytics",
    "--no-show-model-warnings",
    "--no-show-release-notes",
    "--no-gitignore",
)


@pytest.fixture(scope="module")
def aider() -> str:
    """Install aider once, beside other temporary files, and return its program's path."""
    folder = Path(tempfile.gettempdir()) / f"tollkeeper-{AIDER}"
    if not (folder / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        command = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", AIDER]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        assert done.returncode == 0, done.stderr[-2000:]
        (folder / "installed").touch()
    return str(folder / "bin" / "aider")


@pytest.mark.parametrize("is_streamed", [True, False])
def test_aider_edits_a_file_and_its_requests_are_recorded(agents: Agents, aider: str, is_streamed: bool) -> None:
    model = f"aider-{is_streamed}".lower()  # by which its records are found
    agents.installation.request("POST", "/v1/models", {"id": model, "pool": "agents"})
    wait_until_served(agents.installation, model)
    work = agents.home / "work"
    work.mkdir()
    file = work / "colour.txt"
    file.write_text("red\n")
    printed = agents.run(
        aider,
        *("--model", f"openai/{model}", "--no-git", "--yes-always", "--stream" if is_streamed else "--no-stream"),
        *(*OFFLINE, "--message", TASK, "colour.txt"),
        OPENAI_API_BASE=f"{agents.installation.gateway_url}/v1",
        OPENAI_API_KEY=agents.installation.key,
    )
    assert file.read_text() == "blue\n", printed
    count = len(agents.model.bodies)
    assert count and all(bool(body.get("stream")) == is_streamed for body in agents.model.bodies)
    query = (
        "SELECT count() AS requests, countIf(stream) AS streamed, sum(tokens_input_text) AS input, "
        f"sum(tokens_output_text) AS output FROM requests WHERE requested_model = '{model}'"
    )
    expected = {"requests": count, "streamed": count * is_streamed, "input": 10 * count, "output": 5 * count}
    assert poll_within(lambda: agents.installation.store().query(query) == [expected], 60)
