"""MCP servers whose tools the gateway offers, and the rules that say who may use them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from backends.http_client.control_plane import path_segment
from contracts.errors import InvalidRequest
from dashboard.forms import outcome, show_refusal
from dashboard.panels import panel
from dashboard.table import Table
from dashboard.views.admin_parts import ask_first, form, moment, pick, quoted, submit, when_column
from dashboard.visit import Visit

_text = st.column_config.TextColumn
_SERVERS: Final[dict[str, Any]] = {
    "Server": _text(width="small", help="Its tools are named SERVER__TOOL"),
    "Address": _text(help="Its HTTP endpoint, or the program that a tool host starts for it"),
    "Credentials": _text(help="How the gateway authenticates to the server; secrets are never shown"),
    "Default": _text(width="small", help="Whether callers that no rule covers may use its tools"),
    "USD per call": _text(width="small", help="Unless a tool has its own price; empty: unpriced"),
    "Per-tool settings": _text(width="small", help="Patterns of tools with their own price, timeout or limit"),
    "Created": when_column(),
}
_RULES: Final[dict[str, Any]] = {
    "Rule": _text(width="small"),
    "Effect": _text(width="small", help="deny takes precedence over allow"),
    "Tools": _text(help="Patterns of full tool names"),
    "Covers": _text(help="Callers that the rule applies to"),
    "Created": when_column(),
}
_SCOPES: Final = ("tenant", "team", "project", "key")


@dataclass(frozen=True, slots=True)
class _Kind:
    """MCP servers or tool rules: path and texts for the forms they share."""

    noun: str
    path: str
    example: Mapping[str, Any]
    loss: str  # the effect of deleting one


_SERVER: Final = _Kind(
    "MCP server",
    "/v1/mcp-servers",
    {"url": "https://mcp.example.com/mcp", "key": "stored:example", "price_usd": "0.001"},
    "Its tools disappear from every list within a second, and its stored access tokens are deleted.",
)
_RULE: Final = _Kind(
    "Tool rule",
    "/v1/tool-rules",
    {"effect": "deny", "tools": ["github__delete_*"], "tenant": "acme"},
    "Within a second, the remaining rules and the server's default decide about the tools that it allowed or denied.",
)


def draw_tools(visit: Visit) -> None:
    """Draw MCP servers and tool rules, with forms for viewers who may change them."""
    servers = visit.control.get_all(_SERVER.path)
    chosen = pick(
        "MCP servers",
        servers,
        Table([_server(visit, row) for row in servers]),
        key="admin_mcp_servers",
        columns=_SERVERS,
        help="Their tools are offered at /mcp with the same keys, limits and budgets as models (docs/mcp.md). Select a "
        "line to change it.",
        empty="No MCP servers: /mcp offers no tools.",
    )
    _new(visit, _SERVER)
    if chosen is not None:
        _change(visit, _SERVER, chosen)
    rules = visit.control.get_all(_RULE.path)
    chosen = pick(
        "Tool rules",
        rules,
        Table([_rule(visit, row) for row in rules]),
        key="admin_tool_rules",
        columns=_RULES,
        help="A denied tool is neither listed nor callable. Select a row to change it.",
        empty="No tool rules: each server's default applies to all callers.",
    )
    _new(visit, _RULE)
    if chosen is not None:
        _change(visit, _RULE, chosen)


def _server(visit: Visit, row: Mapping[str, Any]) -> dict[str, object]:
    rules = row["rules"]
    return {
        "Server": row["id"],
        "Address": rules.get("url", ""),
        "Credentials": _credentials(rules),
        "Default": rules.get("default", "allow"),
        "USD per call": rules.get("price_usd") or "",
        "Per-tool settings": ", ".join(str(one.get("match", "")) for one in rules.get("tools", ())),
        "Created": moment(visit, row["created_at"]),
    }


def _credentials(rules: Mapping[str, Any]) -> str:
    oauth = rules.get("oauth")
    if oauth:
        return "OAuth, refresh token" if oauth.get("refresh_token") else "OAuth, client credentials"
    return str(rules.get("key") or "none")


def _rule(visit: Visit, row: Mapping[str, Any]) -> dict[str, object]:
    rules = row["rules"]
    covered = [f"{scope} {rules[scope]}" for scope in _SCOPES if rules.get(scope)]
    return {
        "Rule": row["id"],
        "Effect": rules.get("effect", ""),
        "Tools": ", ".join(rules.get("tools", ())),
        "Covers": ", ".join(covered) or "everyone",
        "Created": moment(visit, row["created_at"]),
    }


def _new(visit: Visit, kind: _Kind) -> None:
    name_key = kind.path.removeprefix("/v1/")
    with form(f"New {kind.noun}", f"new_{name_key}", visit) as may:
        name = st.text_input("Name", max_chars=63, help="Cannot be changed later").strip()
        rules = st.text_area("Definition, as JSON", json.dumps(kind.example, indent=2), height=160)
        if submit(f"Create {kind.noun}", may=may):
            body = _read(rules)
            if body is not None:
                with outcome(f"{kind.noun} {name} created"):
                    visit.control.post(kind.path, {"name": name, "rules": body})


def _change(visit: Visit, kind: _Kind, row: Mapping[str, Any]) -> None:
    name, may = str(row["id"]), visit.viewer.can_write
    path = f"{kind.path}/{path_segment(name)}"
    with panel(f"{kind.noun} {name}"):
        with st.form(f"change_{kind.noun}_{name}", border=False, enter_to_submit=False):
            stated = {field: value for field, value in row["rules"].items() if value not in (None, "", [], {})}
            rules = st.text_area("Definition, as JSON", json.dumps(stated, indent=2), height=260, disabled=not may)
            if submit("Save", may=may):
                body = _read(rules)
                if body is not None:
                    with outcome(f"{kind.noun} {name} changed"):
                        visit.control.patch(path, {"rules": body})
        if st.button("Delete", icon=":material/delete:", disabled=not may, key=f"delete_{kind.noun}_{name}"):
            ask_first(
                f"Delete {quoted(name)}?",
                kind.loss,
                "Delete",
                lambda: visit.control.delete(path),
                f"{kind.noun} {name} deleted",
                typed=name,
            )


def _read(text: str) -> dict[str, Any] | None:
    """Parse a definition from JSON; if it is invalid, show why and return `None`."""
    try:
        rules = json.loads(text)
    except ValueError as error:
        show_refusal(InvalidRequest(f"the definition is not valid JSON: {error}", param="rules"))
        return None
    if not isinstance(rules, dict):
        show_refusal(InvalidRequest("the definition must be a JSON object", param="rules"))
        return None
    return rules
