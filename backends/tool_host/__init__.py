"""The tool host: starts MCP servers that speak over their standard input and output, and offers them over HTTP."""
