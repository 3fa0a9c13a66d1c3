"""Facts about models: limits, features and prices, by name or from a catalog."""
