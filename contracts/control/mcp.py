"""MCP servers, who may use their tools, and the access tokens for them."""

from datetime import datetime

from sqlalchemy import JSON, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from contracts.control.base import Base, UtcDateTime


class McpServer(Base):
    """A server by its name; `rules` are what `contracts.mcp.plain.mcp_server_of` takes beside it."""

    __tablename__ = "mcp_servers"

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    rules: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class McpToolRule(Base):
    """A rule by its name; `rules` are what `contracts.mcp.plain.tool_rule_of` takes beside it."""

    __tablename__ = "mcp_tool_rules"

    id: Mapped[str] = mapped_column(String(63), primary_key=True)
    rules: Mapped[dict[str, object]] = mapped_column(JSON, default=dict)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class McpToken(Base):
    """What an authorization server gave for a server last: `contracts.mcp.oauth.AccessGrant` as JSON, sealed.

    Gateways write it, without raising the revision.
    """

    __tablename__ = "mcp_tokens"

    server: Mapped[str] = mapped_column(String(63), primary_key=True)
    sealed: Mapped[str] = mapped_column(Text)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
