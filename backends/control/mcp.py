"""MCP servers and tool rules in the control database: both are named objects with rules, stored in the same way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from backends.control.changes import Author, begin_change
from backends.control.row_names import row_name
from backends.control.sound_rows import SoundRows
from backends.control.stored_keys import settings_with_sealed, with_sealed
from contracts.control import McpServer, McpToken, McpToolRule
from contracts.errors import ConfigurationError, Conflict, InvalidRequest, NotFound
from contracts.mcp.plain import mcp_server_of, tool_rule_of
from contracts.mcp.servers import MAX_RULES, MAX_SERVERS, McpServerSpec, ToolRule

Row = McpServer | McpToolRule


@dataclass(frozen=True, slots=True)
class McpKind:
    """One of the two kinds of objects."""

    table: type[Any]
    noun: str  # in the audit log
    most: int
    build: Callable[[str, Mapping[str, Any]], object]


SERVERS: Final = McpKind(McpServer, "mcp_server", MAX_SERVERS, mcp_server_of)
TOOL_RULES: Final = McpKind(McpToolRule, "tool_rule", MAX_RULES, tool_rule_of)


def create_object(session: Session, author: Author, kind: McpKind, name: str, rules: Mapping[str, object]) -> Row:
    """Create an MCP server or tool rule. Raises Conflict if the name exists, InvalidRequest on invalid rules."""
    begin_change(session, author, f"{kind.noun}.create", name, {"rules": dict(rules)})
    if session.get(kind.table, name) is not None:
        raise Conflict(f"{_words(kind)} {name!r} exists; change that one", param="name")
    if len(list(session.scalars(select(kind.table.id)))) >= kind.most:
        raise InvalidRequest(f"there are {kind.most} of these, the most; delete one first", param="name")
    row: Row = kind.table(id=name, rules=_checked(kind, name, rules), created_at=author.at)
    session.add(row)
    session.flush()
    return row


def list_objects(session: Session, kind: McpKind, *, after: str = "", limit: int = 100) -> list[Row]:
    """Return up to `limit` MCP servers or tool rules whose names sort after `after`."""
    wanted = select(kind.table).where(kind.table.id > after).order_by(kind.table.id)
    return list(session.scalars(wanted.limit(limit)))


def get_object(session: Session, kind: McpKind, name: str) -> Row:
    """Return an MCP server or tool rule. Raises NotFound."""
    row: Row | None = session.get(kind.table, name)
    if row is None:
        raise NotFound(f"there is no {_words(kind)} {name!r}", rows=[row_name(kind.table, name)])
    return row


def set_object(session: Session, author: Author, kind: McpKind, name: str, rules: Mapping[str, object]) -> Row:
    """Replace all rules of an MCP server or tool rule. Raises NotFound, and InvalidRequest if they are invalid."""
    entry = begin_change(session, author, f"{kind.noun}.update", name)
    row = get_object(session, kind, name)
    entry.detail = {"before": {"rules": row.rules}, "after": {"rules": dict(rules)}}
    row.rules = _checked(kind, name, rules)
    session.flush()
    return row


def delete_object(session: Session, author: Author, kind: McpKind, name: str) -> None:
    """Remove an MCP server or tool rule. Raises NotFound."""
    begin_change(session, author, f"{kind.noun}.delete", name)
    session.delete(get_object(session, kind, name))
    if kind is SERVERS:
        session.execute(delete(McpToken).where(McpToken.server == name))
    session.flush()


def load_mcp_servers(rows: SoundRows, stored: Mapping[str, str]) -> dict[str, McpServerSpec]:
    """Return the servers by name, with their stored keys encrypted. An unreadable one is left out."""

    def build(row: Any) -> McpServerSpec:
        spec = mcp_server_of(row[0].id, row[0].rules)
        settings = settings_with_sealed(spec.settings, stored)
        return replace(spec, key_ref=with_sealed(spec.key_ref, stored), settings=settings)

    wanted = select(McpServer).order_by(McpServer.id)
    return {spec.id: spec for spec in rows.build("MCP server", wanted, (McpServer.id,), build)}


def load_tool_rules(rows: SoundRows) -> tuple[ToolRule, ...]:
    """Return the rules. An unreadable one becomes a rule that denies every tool, as it may have denied some."""
    wanted = select(McpToolRule).order_by(McpToolRule.id)
    return tuple(rows.build("tool rule", wanted, (McpToolRule.id,), _rule))


def _rule(row: Any) -> ToolRule:
    try:
        return tool_rule_of(row[0].id, row[0].rules)
    except (ConfigurationError, TypeError, ValueError):
        return ToolRule("unreadable", "deny", ("*",))


def _words(kind: McpKind) -> str:
    return "MCP server" if kind is SERVERS else "tool rule"


def _checked(kind: McpKind, name: str, rules: Mapping[str, object]) -> dict[str, object]:
    try:
        kind.build(name, rules)
    except ConfigurationError as error:
        raise InvalidRequest(error.message, param=error.param or "rules") from error
    return dict(rules)
