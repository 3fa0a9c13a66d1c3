"""Hosts as strict as the real ones: they refuse in their wording what their profile excludes, and answer in dialect."""
