"""The official conformance suite (npm: @modelcontextprotocol/conformance) against the gateway.

Needs Node.js 22 and the suite's version 0.2.0-alpha.12; `MCP_CONFORMANCE` is the command that runs it (`make
conformance` sets it). The suite sends no key, so that a relay before the gateway adds one. It calls tools by the
names that it wants to find, and so it is given one server's own address, `/mcp/SERVER`.
"""

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.gateway.conftest import KEY
from tests.gateway.mcp.conformance_server import conformance_server
from tests.gateway.mcp.conftest import tool_calls, with_servers

NO_SCOPE = "resources, prompts and completions are not offered"
NO_LEVEL = "it sets a log level: no logging capability is declared"
NO_STREAM = "what a server of an earlier revision asks of its client needs a session, of which the gateway keeps none"
SKIPPED = {
    "2025-11-25": {
        "logging-set-level": NO_LEVEL,
        "tools-call-with-logging": NO_LEVEL,
        "completion-complete": NO_SCOPE,
        "tools-call-sampling": NO_STREAM,
        "tools-call-elicitation": NO_STREAM,
        "elicitation-sep1034-defaults": NO_STREAM,
        "elicitation-sep1330-enums": NO_STREAM,
        "resources-list": NO_SCOPE,
        "resources-read-text": NO_SCOPE,
        "resources-read-binary": NO_SCOPE,
        "resources-templates-read": NO_SCOPE,
        "resources-subscribe": NO_SCOPE,
        "resources-unsubscribe": NO_SCOPE,
        "prompts-list": NO_SCOPE,
        "prompts-get-simple": NO_SCOPE,
        "prompts-get-with-args": NO_SCOPE,
        "prompts-get-embedded-resource": NO_SCOPE,
        "prompts-get-with-image": NO_SCOPE,
    },
    "2026-07-28": {
        "caching": f"it looks at lists of prompts and resources beside that of tools: {NO_SCOPE}",
        "completion-complete": NO_SCOPE,
        "resources-list": NO_SCOPE,
        "resources-read-text": NO_SCOPE,
        "resources-read-binary": NO_SCOPE,
        "resources-templates-read": NO_SCOPE,
        "sep-2164-resource-not-found": NO_SCOPE,
        "prompts-list": NO_SCOPE,
        "prompts-get-simple": NO_SCOPE,
        "prompts-get-with-args": NO_SCOPE,
        "prompts-get-embedded-resource": NO_SCOPE,
        "prompts-get-with-image": NO_SCOPE,
        "input-required-result-non-tool-request": NO_SCOPE,
    },
}
PASSED = {
    "2025-11-25": [
        "server-initialize",
        "ping",
        "tools-list",
        "tools-call-simple-text",
        "tools-call-image",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-mixed-content",
        "tools-call-error",
        "tools-call-with-progress",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ],
    "2026-07-28": [
        "server-stateless",
        "tools-list",
        "tools-call-simple-text",
        "tools-call-image",
        "tools-call-audio",
        "tools-call-embedded-resource",
        "tools-call-mixed-content",
        "tools-call-error",
        "tools-call-with-progress",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "input-required-result-basic-elicitation",
        "input-required-result-basic-sampling",
        "input-required-result-basic-list-roots",
        "input-required-result-request-state",
        "input-required-result-multiple-input-requests",
        "input-required-result-multi-round",
        "input-required-result-missing-input-response",
        "input-required-result-result-type",
        "input-required-result-unsupported-methods",
        "input-required-result-tampered-state",
        "input-required-result-capability-check",
        "input-required-result-ignore-extra-params",
        "input-required-result-validate-input",
    ],
}
COMMAND = os.environ.get("MCP_CONFORMANCE", "")
pytestmark = pytest.mark.skipif(not COMMAND, reason="MCP_CONFORMANCE names no conformance suite; make conformance")


@pytest.mark.parametrize(("revision", "scenario"), [(one, each) for one in PASSED for each in PASSED[one]])
async def test_a_scenario_of_the_suite_passes(start_gateway, tmp_path, revision, scenario):
    upstream = conformance_server()
    await upstream.start()
    gateway = await start_gateway(with_servers({"name": "everything", "url": upstream.url}), drain_seconds=0.1)
    relay = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.gateway.mcp.key_relay", str(gateway.port), KEY, stdout=asyncio.subprocess.PIPE
    )
    assert relay.stdout is not None
    url = f"http://127.0.0.1:{(await relay.stdout.readline()).decode().strip()}/mcp/everything"
    options = ("--scenario", scenario, "--spec-version", revision, "--force", "-o", str(tmp_path / "out"))
    process = await asyncio.create_subprocess_exec(
        *shlex.split(COMMAND),
        "server",
        "--url",
        url,
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=tmp_path,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), 60)
    finally:
        relay.kill()
        await relay.communicate()
        await upstream.stop()
    checks = [one for path in Path(tmp_path).rglob("checks.json") for one in json.loads(path.read_text())]
    failed = [f"{one['id']}: {one.get('errorMessage')}" for one in checks if one["status"] == "FAILURE"]
    assert checks and not failed, "\n".join([*failed, said.decode()[-2000:]])
    assert process.returncode == 0
    if scenario.startswith("tools-call"):
        assert tool_calls(gateway)


@pytest.mark.parametrize("revision", PASSED)
async def test_each_scenario_that_a_revision_requires_is_run_or_has_its_reason(revision):
    process = await asyncio.create_subprocess_exec(
        *shlex.split(COMMAND), "list", "--requirements", revision, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    lines = said.decode().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("Server scenarios"))
    required = []
    for line in lines[start + 1 :]:
        if not line.strip().startswith("- "):
            break
        required.append(line.strip()[2:].split(" ")[0])
    assert set(required) == {*PASSED[revision], *SKIPPED[revision]}
