"""The WebSocket transport of the Responses API, including `response.steer`."""
