"""Metrics of MCP servers' tools: definitions that changed, are left out, or in which guardrails found something."""

from collections.abc import Iterator, Mapping

from gateway.mcp.servers import McpServers
from gateway.observability.metrics.exposition import Family


def mcp_families(servers: McpServers, findings: Mapping[tuple[str, str], int]) -> Iterator[Family]:
    """Yield the metrics of MCP servers. `findings` are counted by server and action."""
    states = servers.states()
    yield Family(
        "tollkeeper_mcp_definition_changes_total",
        "counter",
        "Definitions of tools that a server changed.",
        [({"server": str(state["server"])}, _number(state["changes"])) for state in states],
    )
    yield Family(
        "tollkeeper_mcp_definitions_left_out",
        "gauge",
        "Tools of a server that are not offered: unusable, or not as they are pinned.",
        [({"server": str(state["server"])}, _number(state["left_out"])) for state in states],
    )
    yield Family(
        "tollkeeper_mcp_definition_findings_total",
        "counter",
        "Findings of guardrails in definitions of tools, each counted once.",
        [({"server": server, "action": action}, count) for (server, action), count in findings.items()],
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
