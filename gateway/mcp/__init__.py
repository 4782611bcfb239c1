"""The MCP gateway: one endpoint for the tools of many MCP servers, with the same keys, limits and ledger as models."""
