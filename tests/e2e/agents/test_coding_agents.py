"""Claude Code and Codex with their defaults: they start, run a command that the model asks for, and answer."""

from typing import Any

import pytest

from tests.e2e.agents.conftest import MODEL, Agents

pytestmark = pytest.mark.e2e

CODEX_CONFIG = """
model = "{model}"
model_provider = "tollkeeper"

[model_providers.tollkeeper]
name = "Tollkeeper"
base_url = "{url}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
"""


def results(agents: Agents) -> list[Any]:
    messages = [message for body in agents.model.bodies for message in body["messages"]]
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_claude_code_runs_a_command_and_answers(agents: Agents) -> None:
    printed = agents.run(
        agents.program("claude"),
        "-p",
        "How much is 40 and 2?",
        "--allowedTools",
        "Bash",
        ANTHROPIC_BASE_URL=agents.installation.gateway_url,
        ANTHROPIC_AUTH_TOKEN=agents.installation.key,
        ANTHROPIC_MODEL=MODEL,
    )
    assert "The tool says: 42" in printed
    assert results(agents) and "42" in str(results(agents)[-1])


def test_codex_runs_a_command_and_answers(agents: Agents) -> None:
    config = agents.home / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text(CODEX_CONFIG.format(model=MODEL, url=agents.installation.gateway_url))
    printed = agents.run(
        agents.program("codex"),
        "exec",
        "--skip-git-repo-check",
        "How much is 40 and 2?",
    )
    assert "The tool says:" in printed and "42" in printed
    assert results(agents) and "42" in str(results(agents)[-1])
    names = {tool["function"]["name"] for tool in agents.model.bodies[0]["tools"]}
    assert "multi_agent_v1__spawn_agent" in names, "the functions of its namespaces are offered"
