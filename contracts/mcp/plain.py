"""MCP servers and tool rules from plain data, as the YAML file and the control database hold them."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from contracts.errors import ConfigurationError
from contracts.mcp.servers import (
    DEFAULT_CONCURRENT,
    DEFAULT_RESULT_BYTES,
    DEFAULT_TIMEOUT_SECONDS,
    Access,
    McpServerSpec,
    ToolRule,
    ToolTerms,
)
from contracts.pricing.money import pico_usd


class _Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    match: str
    price_usd: Decimal | None = None
    timeout_seconds: float | None = None
    max_result_bytes: int | None = None


class _Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    key: str = ""
    headers: dict[str, str] = {}
    tls: dict[str, str] = {}
    default: Access = "allow"
    price_usd: Decimal | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    max_result_bytes: int = DEFAULT_RESULT_BYTES
    max_concurrent: int = DEFAULT_CONCURRENT
    tools: tuple[_Terms, ...] = ()


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effect: Access
    tools: tuple[str, ...]
    tenant: str = ""
    team: str = ""
    project: str = ""
    key: str = ""


def mcp_server_of(name: str, rules: Mapping[str, Any]) -> McpServerSpec:
    """Return an MCP server. Raise ConfigurationError, naming the field at fault."""
    given = _converted(rules, _Server, f"MCP server {name[:60]!r}")
    settings: dict[str, object] = {}
    if given.headers:
        settings["headers"] = given.headers
    if given.tls:
        settings["tls"] = given.tls
    return McpServerSpec(
        id=name,
        url=given.url,
        key_ref=given.key,
        settings=settings,
        default=given.default,
        price_pico_usd=_price(given.price_usd),
        timeout_seconds=given.timeout_seconds,
        max_result_bytes=given.max_result_bytes,
        max_concurrent=given.max_concurrent,
        tools=tuple(
            ToolTerms(one.match, _price(one.price_usd), one.timeout_seconds, one.max_result_bytes)
            for one in given.tools
        ),
    )


def tool_rule_of(name: str, rules: Mapping[str, Any]) -> ToolRule:
    """Return a tool rule. Raise ConfigurationError, naming the field at fault."""
    given = _converted(rules, _Rule, f"tool rule {name[:60]!r}")
    return ToolRule(name, given.effect, given.tools, given.tenant, given.team, given.project, given.key)


def _converted(rules: Mapping[str, Any], kind: type[Any], about: str) -> Any:
    try:
        return msgspec.convert(dict(rules), kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(str(error), about=about) from error


def _price(price_usd: Decimal | None) -> int | None:
    if price_usd is None:
        return None
    try:
        return pico_usd(price_usd)
    except ValueError as error:
        raise ConfigurationError(str(error), param="price_usd") from error
