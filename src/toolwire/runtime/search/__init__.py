"""Finding the right tool among thousands."""
