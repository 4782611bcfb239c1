"""Claude Code, Codex, Gemini CLI and opencode read a file, edit it and run a command, at a provider of their own API.

`make agents` runs them: they are too slow for every change.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agents.conftest import Agents, wait_until_served
from tests.e2e.agents.native_provider import AFTER, BEFORE, DONE, NativeProvider, Recorder
from tests.e2e.agents.test_coding_agents import CODEX_CONFIG
from tests.e2e.installation import Installation
from tests.steady_time import poll_within

pytestmark = [pytest.mark.e2e, pytest.mark.agents]

# Each agent asks for a model of its own, by which its records are found.
CLAUDE, CODEX, GEMINI, OPENCODE = (f"native-agent-{number}" for number in range(1, 5))
UPSTREAM_MODEL = "provider-model-1"
OPENCODE_CONFIG = """
{{"provider": {{"tollkeeper": {{
  "npm": "@ai-sdk/anthropic",
  "options": {{"baseURL": "{url}/v1", "apiKey": "{{env:GATEWAY_KEY}}"}},
  "models": {{"{model}": {{}}}}
}}}}}}
"""


@pytest.fixture(scope="module")
def native(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeProvider]:
    """A provider that is a target of the installation."""
    running = NativeProvider(tmp_path_factory.mktemp("work") / "colour.txt")
    target = {"id": "native", "kind": "openai_http", "url": f"{running.url}/v1", "model": UPSTREAM_MODEL}
    installation.request("POST", "/v1/pools", {"id": "native-agents"})
    settings = {"settings": {"apis": ["messages", "responses", "gemini"]}}
    installation.request("POST", "/v1/pools/native-agents/targets", target | settings)
    for model in (CLAUDE, CODEX, GEMINI, OPENCODE):
        installation.request("POST", "/v1/models", {"id": model, "pool": "native-agents"})
    wait_until_served(installation, OPENCODE)
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


def check_bodies(model: str, sent: list[bytes], arrived: list[bytes]) -> None:
    """Compare what the agent sent with what arrived: byte for byte but for the model's name."""
    assert len(sent) >= 4 and len(sent) == len(arrived)
    for one, other in zip(sorted(sent), sorted(arrived), strict=True):
        assert one.replace(_named(model), _named(UPSTREAM_MODEL), 1) == other


def _named(model: str) -> bytes:
    return f'"model":"{model}"'.encode()


def check_records(
    installation: Installation, model: str, bodies: list[bytes], api: str, tokens: tuple[int, int, int]
) -> None:
    """Compare the records with the provider's usage: each request used the same, and streams are recorded as such."""
    count, streamed = len(bodies), sum(json.loads(body).get("stream", api == "generate_content") for body in bodies)
    assert streamed >= 4
    query = (
        "SELECT count() AS requests, countIf(stream) AS streamed, sum(tokens_input_text) AS input, "
        "sum(ifNull(tokens_cache_read_text, 0)) AS cached, "
        "sum(tokens_output_text + ifNull(tokens_output_reasoning, 0)) AS output "
        f"FROM requests WHERE requested_model = '{model}' AND api = '{api}'"
    )
    used_input, used_cached, used_output = tokens
    expected = {
        "requests": count,
        "streamed": streamed,
        "input": count * used_input,
        "cached": count * used_cached,
        "output": count * used_output,
    }
    found: list[object] = []

    def is_recorded() -> bool:
        found[:] = installation.store().query(query)
        return found == [expected]

    assert poll_within(is_recorded, 60), f"recorded is {found}, not {expected}"


def sessions_of(installation: Installation, model: str) -> set[str]:
    rows = installation.store().query(
        f"SELECT DISTINCT conversation_id AS session FROM requests WHERE requested_model = '{model}'"
    )
    return {str(row["session"]) for row in rows}


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
        ANTHROPIC_MODEL=CLAUDE,
        ANTHROPIC_DEFAULT_HAIKU_MODEL=CLAUDE,
    )
    assert DONE + AFTER in printed
    assert provider_of.file.read_text() == AFTER
    arrived = provider_of.bodies["/v1/messages"]
    check_bodies(CLAUDE, recorder.bodies["/v1/messages"], arrived)
    asked = [headers.get("anthropic-beta") for headers in recorder.headers["/v1/messages"]]
    assert any(asked) and asked == [headers.get("anthropic-beta") for headers in provider_of.headers["/v1/messages"]]
    check_records(agents.installation, CLAUDE, arrived, "messages", (10, 100, 7))


def test_codex_reads_edits_and_runs(agents: Agents, provider_of: NativeProvider, recorder: Recorder) -> None:
    config = agents.home / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text(CODEX_CONFIG.format(model=CODEX, url=recorder.url))
    printed = agents.run(
        agents.program("codex"),
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        f"Make the colour in {provider_of.file} blue.",
    )
    assert DONE in printed and AFTER in printed
    assert provider_of.file.read_text() == AFTER
    arrived = provider_of.bodies["/v1/responses"]
    check_bodies(CODEX, recorder.bodies["/v1/responses"], arrived)
    check_records(agents.installation, CODEX, arrived, "responses", (10, 20, 9))


def test_gemini_cli_reads_edits_and_runs(agents: Agents, provider_of: NativeProvider, recorder: Recorder) -> None:
    settings = agents.home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
    printed = agents.run(
        agents.program("gemini"),
        "--model",
        GEMINI,
        "--skip-trust",
        "--approval-mode=yolo",
        "--prompt",
        f"Make the colour in {provider_of.file} blue.",
        "--include-directories",
        str(provider_of.file.parent),
        GOOGLE_GEMINI_BASE_URL=recorder.url,
        GEMINI_API_KEY=agents.installation.key,
        GEMINI_CLI_CUSTOM_HEADERS="x-tollkeeper-conversation-id: a-session",
    )
    assert DONE in printed and AFTER in printed
    assert provider_of.file.read_text() == AFTER
    arrived = provider_of.bodies[f"/v1/models/{UPSTREAM_MODEL}:streamGenerateContent"]
    check_bodies(GEMINI, recorder.bodies[f"/v1beta/models/{GEMINI}:streamGenerateContent"], arrived)
    check_records(agents.installation, GEMINI, arrived, "generate_content", (10, 60, 10))
    assert sessions_of(agents.installation, GEMINI) == {"a-session"}


def test_opencode_reads_edits_and_runs(agents: Agents, provider_of: NativeProvider, recorder: Recorder) -> None:
    config = agents.home / ".config" / "opencode" / "opencode.json"
    config.parent.mkdir(parents=True)
    config.write_text(OPENCODE_CONFIG.format(model=OPENCODE, url=recorder.url))
    printed = agents.run(
        agents.program("opencode"),
        "run",
        "--model",
        f"tollkeeper/{OPENCODE}",
        f"Make the colour in {provider_of.file} blue.",
        OPENCODE_DISABLE_MODELS_FETCH="1",  # these tests reach no server but their own
        OPENCODE_CONFIG_CONTENT=json.dumps({"permission": {"external_directory": "allow"}}),
    )
    assert DONE + AFTER in printed
    assert provider_of.file.read_text() == AFTER
    arrived = provider_of.bodies["/v1/messages"]
    check_bodies(OPENCODE, recorder.bodies["/v1/messages"], arrived)
    check_records(agents.installation, OPENCODE, arrived, "messages", (10, 100, 7))
    named = {headers["x-session-affinity"] for headers in recorder.headers["/v1/messages"]}
    assert sessions_of(agents.installation, OPENCODE) == named
