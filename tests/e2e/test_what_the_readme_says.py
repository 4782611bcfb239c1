"""Every block of the README, literally and in order: none leads into a wall. After all other tests of the installation:
what the README makes is for everybody in it.
"""

import json
import re
import urllib.request

import pytest

from bench.newcomer import JOBS, Block, Newcomer, readme_blocks, run_readme
from tests.e2e.installation import Installation

pytestmark = pytest.mark.e2e


def test_every_block_of_the_readme_works_in_order_and_every_model_answers_after_it(
    newcomer: Newcomer, installation: Installation
) -> None:
    blocks = readme_blocks()
    assert {"upstream add", "budgets create", "routes create", "apply -f"} <= {
        part
        for part in ("upstream add", "budgets create", "routes create", "apply -f")
        for b in blocks
        if part in b.text
    }
    keys = re.findall(r"OPENAI_API_KEY=(tk-\S+)", installation.after_setup())
    chat = json.dumps({"model": "tollkeeper-5m", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]})
    request = urllib.request.Request(
        f"{newcomer.gateway}/v1/chat/completions",
        data=chat.encode(),
        headers={"authorization": f"Bearer {keys[0]}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        assert json.load(reply)["usage"]["completion_tokens"] > 0, "under the budget that init made"
    assert "hooks.slack.com" not in (newcomer.folder / "tollkeeper.yaml").read_text()
    failed = [outcome for outcome in run_readme(newcomer, blocks) if outcome.status]
    assert not failed, "\n".join(f"{one.status}: {one.block.text}\n{one.output}" for one in failed)
    for commands in JOBS.values():
        for command in commands:
            outcome = newcomer.run(Block("sh", command))
            assert outcome.status == 0, outcome.output
