"""The model catalog: facts about models from the configuration, from providers and from packaged data."""
