"""MCP servers and tool rules from plain data, as in the YAML file and the control database."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from contracts.errors import ConfigurationError
from contracts.mcp.oauth import CLIENT_SECRET, REFRESH_TOKEN, OAuthSpec
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


class _OAuth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    client_id: str
    client_secret: str = ""
    refresh_token: str = ""
    scope: str = ""
    issuer: str = ""
    token_url: str = ""
    resource: str = ""


class _Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    key: str = ""
    headers: dict[str, str] = {}
    tls: dict[str, str] = {}
    oauth: _OAuth | None = None
    default: Access = "allow"
    price_usd: Decimal | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    max_result_bytes: int = DEFAULT_RESULT_BYTES
    max_concurrent: int = DEFAULT_CONCURRENT
    tools: tuple[_Terms, ...] = ()
    pins: dict[str, str] = {}


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
    if given.oauth is not None:
        settings["credentials"] = oauth_credentials(given.oauth.client_secret, given.oauth.refresh_token)
    return McpServerSpec(
        id=name,
        url=given.url,
        key_ref=given.key,
        settings=settings,
        oauth=None if given.oauth is None else _oauth(given.oauth, name),
        default=given.default,
        price_pico_usd=_price(given.price_usd),
        timeout_seconds=given.timeout_seconds,
        max_result_bytes=given.max_result_bytes,
        max_concurrent=given.max_concurrent,
        tools=tuple(
            ToolTerms(one.match, _price(one.price_usd), one.timeout_seconds, one.max_result_bytes)
            for one in given.tools
        ),
        pins=given.pins,
    )


def oauth_credentials(client_secret: str, refresh_token: str) -> dict[str, str]:
    """Return the references of OAuth's secrets in the form of a server's settings, without empty ones."""
    given = {CLIENT_SECRET: client_secret, REFRESH_TOKEN: refresh_token}
    return {name: reference for name, reference in given.items() if reference}


def _oauth(given: _OAuth, server: str) -> OAuthSpec:
    try:
        return OAuthSpec(given.client_id, given.scope, given.issuer, given.token_url, given.resource)
    except ConfigurationError as error:
        raise ConfigurationError(error.message, about=f"MCP server {server[:60]!r}", param=error.param) from error


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
