"""Clients of MCP servers over streamable HTTP, for current and legacy revisions of the protocol."""
