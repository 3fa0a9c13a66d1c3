"""Content and messages of OpenRouter: what it adds to Chat."""
