"""Recovery of tool calls and reasoning that a model wrote as text: one file per dialect, named as vLLM names its parser."""
