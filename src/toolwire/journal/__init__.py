"""The journal: recorded exchanges and runs, their export, comparison and telemetry."""
