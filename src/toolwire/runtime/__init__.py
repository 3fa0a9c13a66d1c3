"""Running tools: declare, request, validate, authorise, execute, continue."""
