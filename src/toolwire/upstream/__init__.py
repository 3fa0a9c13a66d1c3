"""Who answers: providers, the one place that opens connections to them, and a simulated one for when there is none."""
