"""What is said, whatever the protocol: types only."""
