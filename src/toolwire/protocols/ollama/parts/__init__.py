"""What is said: content, calls and results, messages, each read and written."""
