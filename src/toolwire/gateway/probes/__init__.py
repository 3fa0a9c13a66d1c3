"""Probes of hosts for `toolwire doctor --probe`: tiny requests that find out what a host accepts."""
