"""Content blocks, tool calls and messages of Anthropic Messages, decoded and encoded."""
