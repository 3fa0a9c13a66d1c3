"""Items and content parts of the Responses API: content, calls, results and messages."""
