"""Python programs that a model writes, with tools as functions."""
