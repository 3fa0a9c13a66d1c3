"""Steps, content, calls and results of the Interactions API."""
