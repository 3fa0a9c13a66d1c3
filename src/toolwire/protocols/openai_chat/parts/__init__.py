"""Content parts, tool calls and messages of Chat Completions, decoded and encoded."""
