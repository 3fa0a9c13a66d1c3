"""Transformations of a response between decoding and encoding, one per file, for bodies and for streams."""
