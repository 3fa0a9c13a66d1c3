"""Building blocks of protocol codecs, free of clock, randomness, network, files and event loop."""
