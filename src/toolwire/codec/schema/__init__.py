"""JSON Schemas as a target takes them."""
