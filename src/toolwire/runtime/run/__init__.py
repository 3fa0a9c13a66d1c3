"""Agent runs: the turn loop, its events, limits and state, and recording and replay."""
