"""Host profiles as data, one module per host, and their registry."""
