"""A request: its body, its declarations and its settings."""
