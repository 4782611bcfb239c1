"""MCP servers and tool rules of the YAML file, built and checked."""

from collections.abc import Iterator
from decimal import Decimal

from contracts.errors import ConfigurationError
from contracts.mcp.servers import MAX_RULES, MAX_SERVERS, McpServerSpec, ToolRule, ToolTerms
from contracts.pricing.money import pico_usd
from gateway.config.entries import ConfigurationFile, ConfiguredMcpServer
from gateway.config.rules import Misplaced, Place


def build_mcp_servers(file: ConfigurationFile) -> dict[str, McpServerSpec]:
    """Return the MCP servers by name. Raise Misplaced on the first that cannot stand."""
    if len(file.mcp_servers) > MAX_SERVERS:
        raise Misplaced(("mcp_servers",), f"there are {len(file.mcp_servers)} servers; {MAX_SERVERS} is the most")
    return {given.name: _server(("mcp_servers", number), given) for number, given in enumerate(file.mcp_servers)}


def build_tool_rules(file: ConfigurationFile) -> tuple[ToolRule, ...]:
    """Return the rules for tools. Raise Misplaced on the first that cannot stand."""
    if len(file.tool_rules) > MAX_RULES:
        raise Misplaced(("tool_rules",), f"there are {len(file.tool_rules)} rules; {MAX_RULES} is the most")
    rules = []
    for number, given in enumerate(file.tool_rules):
        try:
            rules.append(
                ToolRule(
                    given.name, given.effect, tuple(given.tools), given.tenant, given.team, given.project, given.key
                )
            )
        except ConfigurationError as error:
            raise _misplaced(("tool_rules", number), error) from error
    return tuple(rules)


def _server(place: Place, given: ConfiguredMcpServer) -> McpServerSpec:
    settings: dict[str, object] = {}
    if given.headers:
        settings["headers"] = given.headers
    if given.tls:
        settings["tls"] = given.tls
    try:
        return McpServerSpec(
            id=given.name,
            url=given.url,
            key_ref=given.key,
            settings=settings,
            default=given.default,
            price_pico_usd=_price(given.price_usd),
            timeout_seconds=given.timeout_seconds,
            max_result_bytes=given.max_result_bytes,
            max_concurrent=given.max_concurrent,
            tools=tuple(_terms(given)),
        )
    except ConfigurationError as error:
        raise _misplaced(place, error) from error


def _terms(given: ConfiguredMcpServer) -> Iterator[ToolTerms]:
    for terms in given.tools:
        yield ToolTerms(terms.match, _price(terms.price_usd), terms.timeout_seconds, terms.max_result_bytes)


def _price(price_usd: Decimal | None) -> int | None:
    try:
        return None if price_usd is None else pico_usd(price_usd)
    except ValueError as error:
        raise ConfigurationError(str(error), param="price_usd") from error


def _misplaced(place: Place, error: ConfigurationError) -> Misplaced:
    return Misplaced((*place, error.param) if error.param else place, error.message)
