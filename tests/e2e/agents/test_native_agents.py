"""Claude Code and Codex with their defaults read a file, edit it and run a command, at a provider of their own API.

`make agents` runs them: they are too slow for every change.
"""

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agents.conftest import Agents
from tests.e2e.agents.native_provider import AFTER, BEFORE, DONE, NativeProvider, Recorder
from tests.e2e.agents.test_coding_agents import CODEX_CONFIG
from tests.e2e.installation import Installation, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.agents]

MODEL, UPSTREAM_MODEL = "native-agent", "provider-model-1"


@pytest.fixture(scope="module")
def native(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeProvider]:
    """A provider that is a target of the installation."""
    running = NativeProvider(tmp_path_factory.mktemp("work") / "colour.txt")
    target = {"id": "native", "kind": "openai_http", "url": f"{running.url}/v1", "model": UPSTREAM_MODEL}
    installation.request("POST", "/v1/pools", {"id": "native-agents"})
    settings = {"settings": {"apis": ["messages", "responses"]}}
    installation.request("POST", "/v1/pools/native-agents/targets", target | settings)
    installation.request("POST", "/v1/models", {"id": MODEL, "pool": "native-agents"})
    asked = urllib.request.Request(
        f"{installation.gateway_url}/v1/models", headers={"authorization": f"Bearer {installation.key}"}
    )
    wait_until(lambda: MODEL in urllib.request.urlopen(asked).read().decode(), 120, f"{MODEL} is served")
    yield running
    running.close()


@pytest.fixture
def provider_of(native: NativeProvider) -> NativeProvider:
    native.file.write_text(BEFORE)
    native.bodies.clear()
    native.headers.clear()
    return native


@pytest.fixture
def recorder(installation: Installation) -> Iterator[Recorder]:
    running = Recorder(installation.gateway_url)
    yield running
    running.close()


def check_bodies(recorder: Recorder, provider: NativeProvider, path: str) -> None:
    """Compare what the agent sent with what arrived: byte for byte but for the model's name."""
    sent, arrived = recorder.bodies[path], provider.bodies[path]
    assert len(sent) >= 4 and len(sent) == len(arrived)
    for one, other in zip(sorted(sent), sorted(arrived), strict=True):
        assert one.replace(_named(MODEL), _named(UPSTREAM_MODEL), 1) == other


def _named(model: str) -> bytes:
    return f'"model":"{model}"'.encode()


def check_records(installation: Installation, provider: NativeProvider, path: str, api: str, tokens: Any) -> None:
    """Compare the records with the provider's usage: each request used the same."""
    count = len(provider.bodies[path])
    query = (
        "SELECT count() AS requests, sum(tokens_input_text) AS input, "
        "sum(ifNull(tokens_cache_read_text, 0)) AS cached, "
        "sum(tokens_output_text + ifNull(tokens_output_reasoning, 0)) AS output "
        f"FROM requests WHERE requested_model = '{MODEL}' AND api = '{api}'"
    )

    used_input, used_cached, used_output = tokens
    expected = {
        "requests": count,
        "input": count * used_input,
        "cached": count * used_cached,
        "output": count * used_output,
    }
    wait_until(lambda: installation.store().query(query)[0] == expected, 60, f"{count} records of {api}")


def test_claude_code_reads_edits_and_runs(agents: Agents, provider_of: NativeProvider, recorder: Recorder) -> None:
    printed = agents.run(
        agents.program("claude"),
        "-p",
        f"Make the colour in {provider_of.file} blue.",
        "--allowedTools",
        "Read,Edit,Bash",
        "--add-dir",
        str(Path(provider_of.file).parent),
        ANTHROPIC_BASE_URL=recorder.url,
        ANTHROPIC_AUTH_TOKEN=agents.installation.key,
        ANTHROPIC_MODEL=MODEL,
        ANTHROPIC_DEFAULT_HAIKU_MODEL=MODEL,
    )
    assert DONE + AFTER in printed
    assert provider_of.file.read_text() == AFTER
    check_bodies(recorder, provider_of, "/v1/messages")
    asked = [headers.get("anthropic-beta") for headers in recorder.headers["/v1/messages"]]
    assert any(asked) and asked == [headers.get("anthropic-beta") for headers in provider_of.headers["/v1/messages"]]
    check_records(agents.installation, provider_of, "/v1/messages", "messages", (10, 100, 7))


def test_codex_reads_edits_and_runs(agents: Agents, provider_of: NativeProvider, recorder: Recorder) -> None:
    config = agents.home / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text(CODEX_CONFIG.format(model=MODEL, url=recorder.url))
    printed = agents.run(
        agents.program("codex"),
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        f"Make the colour in {provider_of.file} blue.",
    )
    assert DONE in printed and AFTER in printed
    assert provider_of.file.read_text() == AFTER
    check_bodies(recorder, provider_of, "/v1/responses")
    check_records(agents.installation, provider_of, "/v1/responses", "responses", (10, 20, 9))
