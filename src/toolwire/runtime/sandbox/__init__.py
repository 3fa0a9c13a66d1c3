"""Where what a model wrote is run."""
