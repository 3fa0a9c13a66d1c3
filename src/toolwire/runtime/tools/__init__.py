"""The tools that come with toolwire."""
