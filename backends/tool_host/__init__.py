"""The tool host: starts MCP servers that communicate over stdin and stdout, and offers them over HTTP."""
