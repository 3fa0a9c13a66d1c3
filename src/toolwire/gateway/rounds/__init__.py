"""Responses that take several upstream rounds: paused turns, and tools the gateway runs itself."""
