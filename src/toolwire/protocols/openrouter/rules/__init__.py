"""What the provider refuses, for `check` and for the simulator."""
