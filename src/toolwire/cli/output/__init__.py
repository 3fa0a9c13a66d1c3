"""Output of runs: as text, on a live terminal, as JSON, and as reports of recorded runs."""
