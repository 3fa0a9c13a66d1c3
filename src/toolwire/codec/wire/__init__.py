"""Wire objects: tolerant decoding, and preservation of unknown fields."""
