"""SDKs' loops around tools with their defaults: Anthropic's tool runners, and the AI SDK's generateText."""

import anthropic
import pytest

from tests.e2e.agents.conftest import MODEL, Agents
from tests.e2e.agents.scripted_model import GREETING, ScriptedModel
from tests.e2e.installation import Installation

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("stream", [False, True])
def test_anthropics_tool_runner_in_python(
    installation: Installation, served_model: ScriptedModel, *, stream: bool
) -> None:
    @anthropic.beta_tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    with anthropic.Anthropic(base_url=installation.gateway_url, api_key=installation.key, max_retries=0) as client:
        runner = client.beta.messages.tool_runner(
            model=MODEL,
            max_tokens=100,
            tools=[add],
            stream=stream,
            messages=[{"role": "user", "content": "How much is 40 and 2?"}],
        )
        last = runner.until_done()
    assert "".join(block.text for block in last.content if block.type == "text") == "The tool says: 42"


@pytest.mark.parametrize("stream", ["0", "1"])
def test_anthropics_tool_runner_in_typescript(agents: Agents, stream: str) -> None:
    assert agents.run("node", agents.script("tool_runner.mjs"), STREAM=stream).strip() == "The tool says: 42"


def test_the_ai_sdk_generates_text_and_takes_steps(agents: Agents) -> None:
    printed = agents.run("node", agents.script("generate_text.mjs")).splitlines()
    assert printed == [f"whole: {GREETING}", f"streamed: {GREETING}", "steps: The tool says: 42"]
