"""Recovery of tool calls and reasoning that a model wrote as text; one file per dialect, with the names of vLLM."""
