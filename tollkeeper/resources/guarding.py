"""Resources that restrict contents and tools: guardrails, MCP servers, tool rules."""

from typing import Final

from tollkeeper.resources.resource import Column, Resource, of
from tollkeeper.resources.shared import rules_file, word

GUARDRAILS: Final = Resource(
    name="guardrails",
    noun="guardrail",
    about="Policies that inspect requests and answers, and block, redact or flag what they find.",
    path="/v1/guardrails",
    key_help="Name: a-z, 0-9, '.', '_' and -; cannot be changed.",
    fields=(rules_file("guardrail", "stages: [{name: cards, detector: pii, action: redact}]", required=True),),
    columns=(
        of("id"),
        Column("tenants", lambda row: ", ".join(row["rules"].get("tenants") or ["all"])),
        Column("routes", lambda row: ", ".join(row["rules"].get("routes") or ["all"])),
        Column("stages", word("stages")),
    ),
    examples=(
        "tollkeeper guardrails create no-cards no-cards.yaml",
        "tollkeeper guardrails list",
        "tollkeeper guardrails show no-cards",
        "tollkeeper guardrails set no-cards no-cards.yaml",
        "tollkeeper guardrails delete no-cards",
    ),
    is_upsert=True,
    described=word("stages"),
    post_key="name",
    help={"set": "Create a guardrail, or replace its rules. Gateways apply them within a second."},
    module="tollkeeper.guardrails",
)


MCP_SERVERS: Final = Resource(
    name="mcp-servers",
    noun="MCP server",
    about="MCP servers whose tools the gateway offers at /mcp.",
    path="/v1/mcp-servers",
    key_help="Name: a-z, 0-9 and -; cannot be changed.",
    fields=(
        rules_file(
            "MCP server", "url: https://mcp.example.com/mcp, price_usd: 0.001", required=True, holds="definition"
        ),
    ),
    columns=(
        of("id"),
        Column("url", lambda row: row["rules"].get("url", "")),
        Column("default", lambda row: row["rules"].get("default", "")),
        Column("price_usd", lambda row: row["rules"].get("price_usd") or "-"),
    ),
    examples=(
        "tollkeeper mcp-servers create weather weather.yaml",
        "tollkeeper mcp-servers list",
        "tollkeeper mcp-servers show weather",
        "tollkeeper mcp-servers set weather weather.yaml",
        "tollkeeper mcp-servers delete weather",
    ),
    is_upsert=True,
    post_key="name",
    help={"set": "Create an MCP server, or replace its definition. Gateways apply it within a second."},
)


TOOL_RULES: Final = Resource(
    name="tool-rules",
    noun="tool rule",
    about="Rules that allow or deny tools of MCP servers to tenants, teams, projects and keys.",
    path="/v1/tool-rules",
    key_help="Name: a-z, 0-9, '.', '_' and -; cannot be changed.",
    fields=(
        rules_file("tool rule", "effect: deny, tools: [weather__*], tenant: acme", required=True, holds="definition"),
    ),
    columns=(
        of("id"),
        Column("effect", lambda row: row["rules"].get("effect", "")),
        Column("tools", lambda row: ", ".join(row["rules"].get("tools") or [])),
        Column("tenant", lambda row: row["rules"].get("tenant") or "all"),
        Column("key", lambda row: row["rules"].get("key") or "all"),
    ),
    examples=(
        "tollkeeper tool-rules create read-only read-only.yaml",
        "tollkeeper tool-rules list",
        "tollkeeper tool-rules show read-only",
        "tollkeeper tool-rules set read-only read-only.yaml",
        "tollkeeper tool-rules delete read-only",
    ),
    is_upsert=True,
    post_key="name",
    help={"set": "Create a tool rule, or replace it. Gateways apply it within a second."},
)
