"""Access log, metrics, loss reports, and recording and replay of exchanges."""
