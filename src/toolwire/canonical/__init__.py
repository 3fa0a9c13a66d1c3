"""Protocol-independent types for requests, responses, stream events and errors."""
