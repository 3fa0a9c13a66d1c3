"""Keys of clients: their secrets, the models that they may use, their limits and their usage."""
