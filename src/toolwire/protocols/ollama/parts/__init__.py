"""Messages, content, calls and results of Ollama's chat API."""
