"""The tools that come with toolwire."""

from .builtin import built_in

__all__ = ["built_in"]
