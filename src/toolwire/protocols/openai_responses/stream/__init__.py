"""An answer piece by piece, each way."""
