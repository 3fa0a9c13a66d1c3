"""A deterministic model that answers in every protocol over real HTTP. What a provider rejects, it rejects."""
