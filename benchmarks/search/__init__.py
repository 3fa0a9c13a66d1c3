"""Quality and speed of tool search."""
