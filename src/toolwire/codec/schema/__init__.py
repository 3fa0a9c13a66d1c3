"""Rewriting JSON Schemas to the subset that a provider accepts."""
