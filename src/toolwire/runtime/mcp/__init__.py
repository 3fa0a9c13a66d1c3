"""MCP: other people's tools under our rules, and our tools for other people's clients."""
