"""MCP servers, rules for their tools, and access tokens for them."""

from datetime import datetime

from sqlalchemy import JSON, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class McpServer(Base):
    """A server by its name; `rules` are the other arguments of `contracts.mcp.plain.mcp_server_of`."""

    __tablename__ = "mcp_servers"

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    rules: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class McpToolRule(Base):
    """A rule by its name; `rules` are the other arguments of `contracts.mcp.plain.tool_rule_of`."""

    __tablename__ = "mcp_tool_rules"

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    rules: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class McpToken(Base):
    """The latest grant of an authorization server for a server: `contracts.mcp.oauth.AccessGrant` as JSON, encrypted.

    Gateways write it, without raising the revision.
    """

    __tablename__ = "mcp_tokens"

    server: Mapped[str] = mapped_column(String(63), primary_key=True)
    sealed: Mapped[str] = mapped_column(Text)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
