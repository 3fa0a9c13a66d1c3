"""Configured and discovered providers, and the models they offer."""
