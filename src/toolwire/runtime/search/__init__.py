"""Tool search: an index over tools, and tools deferred behind it."""
