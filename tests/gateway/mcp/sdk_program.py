"""An MCP program of the official SDK, which speaks every revision over standard input and output."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("weather")


@server.tool()
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"sunny in {city}"


server.run("stdio")
