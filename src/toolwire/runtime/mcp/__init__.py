"""MCP (Model Context Protocol): tools of MCP servers for agents, and toolwire's tools for MCP clients."""
