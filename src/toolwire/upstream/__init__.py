"""Who to call: providers, and the one place that opens connections to models."""
