"""What every protocol folder is built from. No clock, randomness, network, files or event loop."""
