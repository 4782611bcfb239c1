"""Replayed agent sessions in an installation: their books add up, and a session's cap stops a loop in its stream."""

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest

from bench.agent_sessions import MODEL, TOOL, USD_PER_MTOK, Agent, AgentProvider, agents, replay
from tests.e2e.installation import Installation, wait_until

pytestmark = [pytest.mark.e2e]

SESSIONS = 30
CAP_PICO_USD = 50_000_000_000


@pytest.fixture
async def provider(installation: Installation) -> AsyncIterator[AgentProvider]:
    """A provider and an MCP server that the installation uses."""
    async with AgentProvider() as running:
        server = running.mcp_server
        installation.request("POST", "/v1/pools", {"id": MODEL})
        installation.request("POST", f"/v1/pools/{MODEL}/targets", {"id": "provider", **running.target})
        installation.request("POST", "/v1/models", {"id": MODEL, "pool": MODEL})
        price = {"model": MODEL, "version": "agents/1", "usd_per_mtok": USD_PER_MTOK}
        installation.request("POST", "/v1/prices", price)
        installation.request("POST", "/v1/mcp-servers", {"name": server.pop("name"), "rules": server})
        yield running
        installation.request("DELETE", "/v1/mcp-servers/repo")


def tenant(installation: Installation, name: str) -> tuple[str, str]:
    """Create a tenant. Gives its id and its key."""
    made = f"{name}-{time.time_ns()}"
    installation.request("POST", "/v1/tenants", {"id": made, "name": name})
    return made, new_key(installation, made)


def new_key(installation: Installation, tenant: str) -> str:
    key: Any = installation.request("POST", f"/v1/tenants/{tenant}/keys", {"name": "agents"})
    return str(key["secret"])


def offered(installation: Installation, key: str) -> str:
    """Return what a key is offered: the models, and then the tools."""
    list_tools = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json", "accept": "application/json"}
    address = installation.gateway_url
    with urllib.request.urlopen(urllib.request.Request(f"{address}/v1/models", headers=headers)) as models:
        found = models.read().decode()
    with urllib.request.urlopen(urllib.request.Request(f"{address}/mcp", list_tools, headers)) as tools:
        return found + tools.read().decode()


def wait_until_served(installation: Installation, key: str) -> None:
    wait_until(lambda: MODEL in (found := offered(installation, key)) and TOOL in found, 60, "the model and the tool")


def cost_report(installation: Installation, tenant: str, by: str) -> dict[str, dict[str, Any]]:
    """Return the lines of `tollkeeper cost report` by their last label."""
    command = [sys.executable, "-m", "tollkeeper", "cost", "report", "--tenant", tenant, "--by", by, "--json"]
    done = subprocess.run([*command, "--data", str(installation.data)], capture_output=True, text=True, check=True)
    return {line[by]: line for line in json.loads(done.stdout)["levels"][-1]["lines"]}


async def test_sessions_add_up_and_a_cap_stops_a_loop_in_its_stream(
    installation: Installation, provider: AgentProvider
) -> None:
    working, key = tenant(installation, "working")
    looping, _ = tenant(installation, "looping")
    cap = {"level": "conversation", "metric": "usd", "amount_usd": "0.05"}
    installation.request("POST", f"/v1/tenants/{looping}/limits", cap)
    loop_key = new_key(installation, looping)  # a gateway that knows it knows the limit
    for one in (key, loop_key):
        await asyncio.to_thread(wait_until_served, installation, one)  # the provider answers meanwhile
    planned = [*agents(SESSIONS, "s", key, seed=3), Agent("loop", loop_key, (300, 500), loops=True)]
    *seen, loop = await replay(planned, [installation.port_base], 8)
    assert [fault for one in [*seen, loop] for fault in one.faults] == []

    # What the agent in a loop received. A prompt is reserved as if nothing of it were cached, so that the stream of its
    # last turn ends a little before the cap.
    assert loop.is_cut and loop.refused
    assert CAP_PICO_USD * 4 // 5 < loop.pico_usd <= CAP_PICO_USD
    requests = sum(one.turns + one.tool_calls for one in seen)
    total = await_report(installation, working, requests)
    sessions = cost_report(installation, working, "session")
    assert {name: line["cost_pico_usd"] for name, line in sessions.items()} == {one.name: one.pico_usd for one in seen}
    assert sum(line["cost_pico_usd"] for line in sessions.values()) == total["cost_pico_usd"]
    assert Decimal(total["cost_usd"]) * 10**12 == total["cost_pico_usd"]
    # All that it received is charged once its records are there, the last of which is that of the cut stream.
    capped = wait_until(
        lambda: next(
            (
                line
                for line in cost_report(installation, looping, "session").values()
                if Decimal(line["charged_usd"]) * 10**12 >= loop.pico_usd
            ),
            {},
        ),
        60,
        f"{loop.pico_usd} pico-USD of the loop are charged",
    )
    # The provider's words behind the cut cost something, and are charged to nobody.
    assert Decimal(capped["charged_usd"]) * 10**12 <= CAP_PICO_USD
    assert loop.output_tokens <= capped["output_tokens"]


def await_report(installation: Installation, tenant: str, requests: int) -> dict[str, Any]:
    """Return the tenant's line once all its requests are in the store."""
    return wait_until(
        lambda: next(
            (line for line in cost_report(installation, tenant, "tenant").values() if line["requests"] == requests), {}
        ),
        60,
        f"{requests} requests are in the report",
    )
