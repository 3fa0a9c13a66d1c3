"""The agent runtime: runs, tool calls, approvals, tool search, MCP and sandboxes."""
