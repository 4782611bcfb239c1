"""Clients of MCP servers: over streamable HTTP, in the modern and the legacy revisions of the protocol."""
