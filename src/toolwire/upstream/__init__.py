"""Upstream providers: their settings, the HTTP transport to them, and a simulator."""
