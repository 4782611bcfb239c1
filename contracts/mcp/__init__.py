"""The Model Context Protocol: servers, terms and rules of tools, and what goes over the wire."""
