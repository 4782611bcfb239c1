"""MCP servers and tool rules of the YAML file, built and checked."""

from contracts.errors import ConfigurationError
from contracts.mcp.plain import mcp_server_of, tool_rule_of
from contracts.mcp.servers import MAX_RULES, MAX_SERVERS, McpServerSpec, ToolRule
from gateway.config.entries import ConfigurationFile
from gateway.config.rules import Misplaced, Place


def build_mcp_servers(file: ConfigurationFile) -> dict[str, McpServerSpec]:
    """Return the MCP servers by name. Raise Misplaced on the first invalid one."""
    if len(file.mcp_servers) > MAX_SERVERS:
        raise Misplaced(("mcp_servers",), f"there are {len(file.mcp_servers)} servers; {MAX_SERVERS} is the most")
    servers = {}
    for number, given in enumerate(file.mcp_servers):
        try:
            servers[given.name] = mcp_server_of(given.name, given.rules())
        except ConfigurationError as error:
            raise _misplaced(("mcp_servers", number), error) from error
    return servers


def build_tool_rules(file: ConfigurationFile) -> tuple[ToolRule, ...]:
    """Return the tool rules. Raise Misplaced on the first invalid one."""
    if len(file.tool_rules) > MAX_RULES:
        raise Misplaced(("tool_rules",), f"there are {len(file.tool_rules)} rules; {MAX_RULES} is the most")
    rules = []
    for number, given in enumerate(file.tool_rules):
        try:
            rules.append(tool_rule_of(given.name, given.rules()))
        except ConfigurationError as error:
            raise _misplaced(("tool_rules", number), error) from error
    return tuple(rules)


def _misplaced(place: Place, error: ConfigurationError) -> Misplaced:
    return Misplaced((*place, error.param) if error.param else place, error.message)
