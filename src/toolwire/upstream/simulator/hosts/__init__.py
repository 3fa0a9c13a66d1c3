"""Hosts as strict as the real ones: they refuse what their profile excludes, in their words, and answer in dialect."""
