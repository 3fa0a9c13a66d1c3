"""Sandboxes for shell commands and for Python that a model writes."""
