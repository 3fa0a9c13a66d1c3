"""A deterministic simulated model that serves every protocol over HTTP and rejects what the provider would reject."""
